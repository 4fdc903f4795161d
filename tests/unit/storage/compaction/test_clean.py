"""Records that a compaction keeps and drops, rule by rule."""

from __future__ import annotations

import pytest

from compaction_kit import LIMITS, Cleaner, headers
from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import LOG_APPEND_TIME, CorruptRecord, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import compress
from lakelog.records.record import decode_records, record_bytes
from lakelog.storage.compaction import clean
from lakelog.storage.compaction.plan import CleanerLimits
from lakelog.storage.compaction.records import note_keys
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import INDEX, TIME_INDEX
from lakelog.storage.log import Log
from lakelog.storage.segments.segment_index import ENTRY_SIZE, TIME_ENTRY_SIZE
from poison import sealed
from storage_kit import NOW, Store, memory_store, read_batches, read_records, record_at

CONFIG = LogConfig(
    segment_bytes=400,
    index_interval_bytes=100,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=1000,
    file_delete_delay_ms=0,
)
Pair = tuple[bytes | None, bytes | None]


def batch_of(
    *pairs: Pair,
    codec: int = 0,
    timestamp: int = NOW,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytearray:
    builder = BatchBuilder(codec)
    for number, (key, value) in enumerate(pairs):
        builder.append(timestamp + number, key, value)
    return builder.build(*producer, is_transactional=transactional)


def put(log: Log, batch: bytearray, now_ms: int = NOW) -> int:
    return log.append(batch, leader_epoch=0, now_ms=now_ms, origin="coordinator").base_offset


def closed(store: Store) -> Log:
    """Everything so far in closed, durable segments."""
    store.log.roll(store.clock.now_ms)
    store.log.flush()
    return store.log


@pytest.fixture
def store() -> Store:
    store = memory_store(CONFIG)
    store.create()
    return store


def pairs(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read_records(log)]


def test_only_the_last_value_of_each_key_stays_at_its_offset(store: Store) -> None:
    put(store.log, batch_of((b"a", b"1"), (b"b", b"1"), (b"c", b"1")))
    put(store.log, batch_of((b"a", b"2")))
    put(store.log, batch_of((b"b", b"2"), (b"a", b"3")))
    put(closed(store), batch_of((b"a", b"4")))
    done = Cleaner(store).run()
    assert done is not None and done.end_offset == 6
    assert pairs(store.log) == [
        (2, b"c", b"1"),
        (4, b"b", b"2"),
        (5, b"a", b"3"),
        (6, b"a", b"4"),
    ]
    assert store.log.log_end_offset == 7


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_keeps_its_offsets_and_codec(store: Store, codec: int) -> None:
    put(store.log, batch_of((b"a", b"x" * 50), (b"b", b"1"), (b"a", b"2"), codec=codec))
    put(closed(store), batch_of((b"z", b"")))
    Cleaner(store).run()
    header = headers(store.log)[0]
    assert (header.base_offset, header.last_offset, header.records_count) == (0, 2, 2)
    assert (header.codec, header.max_timestamp) == (codec, NOW + 2)
    assert pairs(store.log)[:2] == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_the_greatest_timestamp_is_that_of_what_stays(store: Store) -> None:
    builder = BatchBuilder()
    for key, time in ((b"a", NOW + 5), (b"b", NOW - 3), (b"c", NOW - 1)):
        builder.append(time, key, b"v")
    put(store.log, builder.build())
    put(store.log, batch_of((b"a", b"2")))
    put(closed(store), batch_of((b"z", b"")))
    Cleaner(store).run()
    assert headers(store.log)[0].max_timestamp == NOW - 1
    found = record_at(store.log, NOW - 2)
    assert found is not None and found[:2] == (NOW - 1, 2)


def test_a_tombstone_stays_from_its_first_cleaning_for_the_retention_time(store: Store) -> None:
    """KAFKA-8522: its horizon is set once, not at each cleaning."""
    cleaner = Cleaner(store)
    put(store.log, batch_of((b"a", b"1"), (b"b", b"1")))
    put(store.log, batch_of((b"a", None)))
    for number in range(3):
        put(closed(store), batch_of((b"c", b"%d" % number)))
        store.clock.now_ms += 400
        cleaner.run()
        header = next(h for h in headers(store.log) if h.base_offset == 2)
        assert header.has_delete_horizon and header.base_timestamp == NOW + 400 + 1000
        assert (2, b"a", None) in pairs(store.log)
        record = next(r for r in read_records(store.log) if r.offset == 2)
        assert record.timestamp == NOW
    put(closed(store), batch_of((b"d", b"1")))
    store.clock.now_ms = NOW + 1400
    cleaner.run()
    assert [key for _, key, _ in pairs(store.log)] == [b"b", b"c", b"d"]


@pytest.mark.parametrize("codec", [0, 4])
def test_a_horizon_changes_no_timestamp(store: Store, codec: int) -> None:
    put(store.log, batch_of((b"a", b"1"), (b"b", None), (b"c", b"\x00" * 30), codec=codec))
    put(closed(store), batch_of((b"a", b"2")))
    before = [r for r in read_records(store.log) if r.offset in (1, 2)]
    cleaner = Cleaner(store)
    cleaner.run()
    assert read_records(store.log)[0].offset == 0, "a's new value is in the active segment"
    put(closed(store), batch_of((b"z", b"")))
    cleaner.run()
    assert [r for r in read_records(store.log) if r.offset in (1, 2)] == before


def test_append_times_remain_the_brokers() -> None:
    store = memory_store(CONFIG._replace(message_timestamp_type="LogAppendTime"))
    store.create()
    put(store.log, batch_of((b"a", b"1"), (b"b", None), (b"a", b"2")), now_ms=NOW + 7)
    put(closed(store), batch_of((b"z", b"")), now_ms=NOW + 9)
    Cleaner(store).run()
    kept = [(r.offset, r.timestamp) for r in read_records(store.log)]
    assert kept == [(1, NOW + 7), (2, NOW + 7), (3, NOW + 9)]
    batch = bytearray(read_batches(store.log)[0])
    assert read_header(batch).has_delete_horizon
    batch[22] &= ~LOG_APPEND_TIME
    told = [record.timestamp for record in decode_records(batch, read_header(batch), 1 << 20)]
    assert told == [NOW + 7, NOW + 7], "a reader that ignores the attribute finds the same"


def test_the_bytes_read_and_written_are_counted(store: Store) -> None:
    put(store.log, batch_of((b"a", b"1"), (b"b", b"1")))
    put(closed(store), batch_of((b"a", b"2")))
    before = store.log.segments[0].size
    done = Cleaner(store).run()
    assert done is not None
    assert (done.stats.bytes_read, done.stats.bytes_written) == (
        before,
        store.log.segments[0].size,
    )


def test_the_last_batch_of_each_producer_stays_if_only_empty(store: Store) -> None:
    """KIP-534."""
    put(store.log, batch_of((b"a", b"1"), (b"b", b"1"), producer=(7, 0, 0)))
    put(store.log, batch_of((b"a", b"2"), producer=(7, 0, 2)))
    put(store.log, batch_of((b"a", b"3"), producer=(8, 3, 0)))
    put(store.log, batch_of((b"a", b"4"), (b"b", b"4")))
    put(closed(store), batch_of((b"z", b"")))
    Cleaner(store).run()
    kept = [
        (h.base_offset, h.records_count, h.producer_id, h.last_sequence) for h in headers(store.log)
    ]
    assert kept == [(2, 0, 7, 2), (3, 0, 8, 0), (4, 2, -1, -1), (6, 1, -1, -1)]
    log = store.killed()
    duplicate = batch_of((b"a", b"2"), producer=(7, 0, 2))
    result = log.append(duplicate, leader_epoch=0, now_ms=NOW)
    assert result.duplicate and result.base_offset == 2
    put(log, batch_of((b"a", b"5"), producer=(7, 0, 3)))


def test_a_record_without_a_key_goes(store: Store) -> None:
    put(store.log, batch_of((None, b"1"), (b"k", b"2")))
    put(closed(store), batch_of((None, b"3")))
    assert Cleaner(store).run() is not None
    assert pairs(store.log) == [(1, b"k", b"2"), (2, None, b"3")]


def test_long_keys_do_not_collide(store: Store) -> None:
    first, second = b"k" * 60, b"k" * 59 + b"K"
    put(store.log, batch_of((first, b"1"), (second, b"1"), (first, b"2")))
    put(closed(store), batch_of((b"z", b"")))
    Cleaner(store).run()
    assert [offset for offset, _, _ in pairs(store.log)] == [1, 2, 3]


def test_a_full_map_cleans_a_part_and_the_rest_later(store: Store) -> None:
    for number in range(40):
        put(store.log, batch_of((b"%d" % (number % 20), b"v"), (b"x", b"v")))
    closed(store)
    cleaner = Cleaner(store, CleanerLimits(10 * 200, 1.0, 1000, 0.0))
    ends = []
    while (done := cleaner.run()) is not None:
        ends.append(done.end_offset)
    assert len(ends) > 2 and ends == sorted(set(ends)) and ends[-1] == 80
    assert [key for _, key, _ in pairs(store.log)] == [b"%d" % n for n in range(20)] + [b"x"]


def test_small_segments_are_merged_up_to_the_size_of_one(store: Store) -> None:
    for number in range(30):
        put(store.log, batch_of((b"k%d" % (number % 3), b"v" * 50)))
    sizes = []
    cleaner = Cleaner(store)
    for _ in range(4):
        put(closed(store), batch_of((b"k", b"v")))
        sizes.append(len(store.log.segments))
        cleaner.run()
    assert sizes[:2] == [11, 12] and sizes[-1] == 5
    assert store.log.segments[0].size <= 400


@pytest.mark.parametrize(
    ("position", "value", "reason"), [(7, 1, "offsets 1 to 2 are impossible"), (16, 1, "magic 2")]
)
def test_fields_without_a_checksum_are_checked(
    store: Store, position: int, value: int, reason: str
) -> None:
    """A base offset that the batch before has already used, and a magic of the past."""
    put(store.log, batch_of((b"a", b"1"), (b"b", b"1")))
    second = store.log.segments.active.size
    put(store.log, batch_of((b"a", b"2"), (b"b", b"2")))
    log = closed(store)
    log.segments[0].open().file.write_at(second + position, bytes([value]))
    with pytest.raises(CorruptLog, match=reason):
        Cleaner(store).run()


@pytest.mark.parametrize("position", [7, 65])
def test_a_damaged_batch_is_not_rewritten(store: Store, position: int) -> None:
    put(store.log, batch_of((b"a", b"1")))
    put(store.log, batch_of((b"a", b"2")))
    log = closed(store)
    file = log.segments[0].open().file
    file.write_at(position, bytes([file.read_at(position, 1)[0] ^ 4]))
    with pytest.raises(CorruptLog, match=r"checksum|impossible"):
        Cleaner(store).run()
    assert not [n for n in store.disk.list(log.folder) if "cleaned" in n or "swap" in n]


def test_a_decompression_bomb_is_kept_as_it_is(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clean, "DECODED_BYTES_MAX", 10_000)
    bomb = batch_of((b"k", b"\0" * 20_000), codec=4)
    put(store.log, batch_of((b"k", b"\0" * 200)))
    put(store.log, bomb)
    log = closed(store)
    done = Cleaner(store, LIMITS).run()
    assert done is not None
    assert done.stats.unreadable_batches == 1
    assert [offset for offset, _, _ in pairs(log)] == [0, 1]


@pytest.mark.parametrize("codec", [0, 4])
def test_a_batch_that_cannot_be_decoded_stays_and_replaces_nothing(
    store: Store, codec: int
) -> None:
    """The others are cleaned around it."""
    sound = bytes(batch_of((b"a", b"2"), (b"b", b"2"))[61:])
    put(store.log, batch_of((b"a", b"1"), (b"c", b"1")))
    poison = sealed(compress(codec, sound + b"\0"), codec, 2)
    put(store.log, poison)
    put(store.log, sealed(b"no frame" * 9, 4, 2))
    put(store.log, batch_of((b"c", b"3"), (b"b", b"3")))
    log = closed(store)
    done = Cleaner(store, LIMITS).run()
    assert done is not None
    assert (done.end_offset, done.stats.unreadable_batches) == (8, 2)
    kept = [read_header(batch) for batch in read_batches(log)]
    assert [header.base_offset for header in kept] == [0, 2, 4, 6]
    assert read_batches(log)[1] == bytes(poison)
    assert [(offset, key) for offset, key, _ in decoded(log, 0)] == [(0, b"a")]
    assert [(offset, key) for offset, key, _ in decoded(log, 6)] == [(6, b"c"), (7, b"b")]


def decoded(log: Log, base: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Of the batch that begins there."""
    (batch,) = [batch for batch in read_batches(log) if read_header(batch).base_offset == base]
    records = decode_records(batch, read_header(batch), 1 << 20)
    return [(record.offset, record.key, record.value) for record in records]


def test_records_of_all_sizes_and_times_stay_as_they_were(store: Store) -> None:
    """Their lengths, times and offsets are varints, of one byte, two and more."""
    store.log.use_config(CONFIG._replace(segment_bytes=1 << 20))
    log, expected = store.log, {}
    for number in range(150):
        key, value = b"%d" % number + b"k" * number, b"v" * (2 * number)
        builder = BatchBuilder(0)
        for delta, name in enumerate((key, key, b"other %d" % number)):
            builder.append(NOW + 64 * delta + number, name, value)
        base = put(log, builder.build())
        expected[base + 1] = NOW + 64 + number, key, value
        expected[base + 2] = NOW + 128 + number, b"other %d" % number, value
    many = BatchBuilder(0)
    for number in range(300):
        many.append(NOW, b"many %d" % number, b"%d" % number)
        expected[log.log_end_offset + number] = NOW, b"many %d" % number, b"%d" % number
    many.append(NOW, b"other 0", b"a newer one")
    expected[log.log_end_offset + 300] = NOW, b"other 0", b"a newer one"
    del expected[2]
    put(log, many.build())
    put(closed(store), batch_of((b"z", b"")))
    assert Cleaner(store).run() is not None
    found = {
        record.offset: (record.timestamp, record.key, record.value)
        for record in read_records(log)
        if record.key != b"z"
    }
    assert found == expected


def test_of_a_batch_of_many_records_those_stay_that_are_the_newest_of_their_keys() -> None:
    """Offsets within the batch from 64 on take two bytes."""
    store = memory_store(LogConfig(cleanup_policy=frozenset({"compact"})))
    log = store.create()
    keys = [b"%d" % number for number in range(200)]
    put(log, batch_of(*((key, b"old") for key in keys)))
    put(log, batch_of(*((key, b"new") for key in keys[::2])))
    closed(store)
    Cleaner(store).run()
    kept = {(record.offset, record.key, record.value) for record in read_records(store.log)}
    old = {(number, keys[number], b"old") for number in range(1, 200, 2)}
    assert kept == old | {(200 + number, key, b"new") for number, key in enumerate(keys[::2])}


def test_segments_are_merged_as_far_as_their_times_fit_into_one_index(store: Store) -> None:
    """Each has one entry there, and none in the index of offsets."""
    log = store.log
    for number in range(7):
        put(log, batch_of((b"%d" % number, b"v")))
        log.roll(NOW)
    log.flush()
    log.use_config(CONFIG._replace(segment_bytes=1 << 20, segment_index_bytes=3 * TIME_ENTRY_SIZE))
    Cleaner(store).run()
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 7]
    assert len(pairs(log)) == 7


def test_a_record_before_the_base_offset_of_its_batch_is_refused() -> None:
    batch = batch_of((b"a", b"1"))
    header = read_header(batch)
    records = bytearray(record_bytes(batch, header, 1 << 20))
    offsets: dict[bytes, int] = {}
    note_keys(bytes(records), 1, 5, 0, offsets)
    assert offsets == {b"a": 5}
    assert records[3] == 0, "the offset, behind the length, the attributes and the time"
    records[3] = 1  # -1
    with pytest.raises(CorruptRecord):
        note_keys(bytes(records), 1, 5, 0, {})


def test_a_cleaned_segment_has_the_indexes_that_appending_it_would_have_made(store: Store) -> None:
    for number in range(8):
        put(store.log, batch_of((b"%d" % number, b"v"), timestamp=NOW + number))
    segment = closed(store).segments[0]
    before = [store.disk.read(segment.path(suffix)) for suffix in (INDEX, TIME_INDEX)]
    assert len(before[0]) > ENTRY_SIZE
    Cleaner(store).run()
    cleaned = store.log.segments[0]
    assert cleaned is not segment
    assert [store.disk.read(cleaned.path(suffix)) for suffix in (INDEX, TIME_INDEX)] == before
