"""Finding by time in logs whose batches say more than is true, or hold more than they look."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

import pytest

from counted_work import lines_run
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec
from lakelog.records.crc import crc32c
from lakelog.storage.errors import CorruptLog
from lakelog.storage.reading import timestamps
from lakelog.storage.segments.checking import CheckJob
from storage_kit import NOW, append, make_batch, memory_store, newest_record, record_at

BOMB_HEADERS = 100_000


def claiming(batch: bytearray, newest_ms: int) -> bytearray:
    """The batch with another greatest timestamp in its header."""
    struct.pack_into(">q", batch, 35, newest_ms)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return batch


def bomb(timestamp: int = NOW) -> bytearray:
    builder = BatchBuilder(Codec.ZSTD)
    builder.append(timestamp, b"key", b"value", [("", None)] * BOMB_HEADERS)
    return builder.build()


def test_headers_by_the_million_are_passed_over() -> None:
    log = memory_store().create()
    append(log, bomb())
    append(log, make_batch(1, timestamp=NOW + 5))
    for ask in (
        lambda: record_at(log, NOW),
        lambda: record_at(log, NOW + 5),
        lambda: newest_record(log),
    ):
        assert lines_run(ask) < BOMB_HEADERS / 50


def test_a_search_ends_at_the_record_it_finds() -> None:
    log = memory_store().create()
    builder = BatchBuilder()
    builder.extend(NOW, [b""] * 100_000, 1 << 30)
    append(log, builder.build())
    assert lines_run(lambda: record_at(log, NOW)) < 1000


def test_a_batch_whose_header_has_a_wrong_time_is_skipped() -> None:
    log = memory_store().create()
    append(log, claiming(make_batch(3), NOW + 100))
    append(log, make_batch(1, timestamp=NOW + 50))
    assert record_at(log, NOW + 20) == (NOW + 50, 3, 3)
    assert record_at(log, NOW + 60) is None
    assert newest_record(log) == (NOW + 50, 3, 3)


def test_the_first_record_with_the_greatest_time_is_found_despite_a_wrong_header() -> None:
    log = memory_store().create()
    append(log, make_batch(1))
    append(log, make_batch(1, timestamp=NOW + 50))
    append(log, claiming(make_batch(1, timestamp=NOW + 50), NOW + 100))
    assert newest_record(log) == (NOW + 50, 1, 3)


def test_a_search_among_too_many_such_batches_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "DECODED_BYTES_MAX", 10_000)
    log = memory_store().create()
    for _ in range(300):
        append(log, claiming(make_batch(1, size=100), NOW + 100))
    assert record_at(log, NOW) == (NOW, 0, 3)
    for ask in (partial(record_at, log, NOW + 50), partial(newest_record, log)):
        with pytest.raises(CorruptLog, match="no record with the time"):
            ask()


def test_the_greatest_after_a_start_within_a_batch_and_its_cost() -> None:
    """Only the batch with the start in it, and the newest of the others, are read."""
    log = memory_store(LogConfig()).create()
    builder = BatchBuilder()
    for time in (NOW + 1000, NOW + 7, NOW + 3):
        builder.append(time, b"k", b"v")
    append(log, builder.build())
    log.advance_log_start(1)
    assert newest_record(log) == (NOW + 7, 1, 3)
    for number in range(20):
        append(log, make_batch(200, timestamp=NOW + number))
    assert newest_record(log) == (NOW + 218, 4002, 3)
    assert lines_run(lambda: newest_record(log)) < 16_000


LIMITED = LogConfig.from_values({"max.decompressed.message.bytes": "500"})


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_lower_limit_for_clients_makes_nothing_corrupt(codec: Codec) -> None:
    log = memory_store().create()
    append(log, make_batch(10, size=100, codec=codec))
    append(log, make_batch(10, size=100, timestamp=NOW + 100, codec=codec))
    log.use_config(LIMITED)
    assert record_at(log, NOW + 3) == (NOW + 3, 3, 3)
    assert record_at(log, NOW + 105) == (NOW + 105, 15, 3)
    assert newest_record(log) == (NOW + 109, 19, 3)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_of_a_batch_too_large_to_decompress_the_header_is_returned(
    monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    monkeypatch.setattr(timestamps, "DECODED_BYTES_MAX", 500)
    log = memory_store().create()
    append(log, make_batch(2, size=10, codec=codec))
    append(log, make_batch(10, size=100, timestamp=NOW + 100, codec=codec))
    append(log, make_batch(2, size=10, timestamp=NOW + 200, codec=codec))
    assert record_at(log, NOW + 1) == (NOW + 1, 1, 3)
    assert record_at(log, NOW + 105) == (NOW + 109, 2, 3)
    assert record_at(log, NOW + 201) == (NOW + 201, 13, 3)
    log.advance_log_start(5)
    assert record_at(log, NOW + 105) == (NOW + 109, 5, 3)
    log.truncate_to(12)
    assert newest_record(log) == (NOW + 109, 5, 3)


@pytest.mark.parametrize(
    ("codec", "size", "is_work"),
    [
        (Codec.NONE, 40_000, False),
        (Codec.GZIP, 10, False),
        (Codec.NONE, 10, False),
        (Codec.GZIP, 40_000, True),
    ],
)
def test_only_much_that_is_compressed_is_handed_to_a_thread(
    codec: Codec, size: int, is_work: bool
) -> None:
    log = memory_store().create()
    builder = BatchBuilder(codec)
    builder.append(NOW, b"key", SeededRandom(1).bytes(size))
    append(log, builder.build())
    search = log.search_time(NOW)
    steps: list[Callable[[], object] | None] = []
    try:
        while True:
            work = next(search) if not steps or steps[-1] is None else search.send(steps[-1]())
            steps.append(work)
    except StopIteration as stop:
        assert stop.value == (NOW, 0, 3)
    assert any(step is not None for step in steps) == is_work


def test_a_check_of_much_that_is_older_than_the_process_is_handed_to_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newest record came first."""
    store = memory_store()
    log = store.create()
    for number in range(200):
        append(log, make_batch(size=1_000, timestamp=NOW - number))
    log = store.restart()
    run, checked = CheckJob.run, []

    def noting(job: CheckJob) -> None:
        checked.append(in_thread)
        run(job)

    monkeypatch.setattr(CheckJob, "run", noting)
    search, in_thread = log.search_time(None), False
    with pytest.raises(StopIteration) as end:
        while True:
            work = next(search)
            if work is not None:
                in_thread = True
                work()
                in_thread = False
    assert end.value.value == (NOW, 0, 3)
    assert checked == [True]
