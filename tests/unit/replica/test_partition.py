from __future__ import annotations

import errno

import pytest

from doubles.disk import MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.keys.topics import FSYNC
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError, OutOfCapacityError
from lakelog.records.batch import CorruptRecord, iter_batches, read_header
from lakelog.records.compression import Codec
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.replica.written import WriteCounts
from lakelog.storage.files import LOG, TXN_INDEX
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.folder.space import DiskSpaceGuard
from lakelog.storage.preparation import NotReady, wait_for
from lakelog.storage.producers.beginnings import AWAITED_MS
from storage_kit import (
    DATA,
    NOW,
    TOPIC_ID,
    ManualClock,
    at_once,
    create_log,
    make_batch,
    read_batches,
    sole_leader,
)


def open_partition(
    disk: MemoryDisk | None = None,
    rolled: list[Partition] | None = None,
    role: Role | None = None,
    space_guard: DiskSpaceGuard | None = None,
    **config: object,
) -> Partition:
    disk = disk or MemoryDisk(ManualClock())
    directory = LogDirectory(DATA, disk, ManualClock(), SeededRandom(1))
    directory.open(None, 1)
    log = create_log(directory, "t", 0, TOPIC_ID, LogConfig(**config))  # type: ignore[arg-type]
    events = rolled if rolled is not None else []
    role = role or sole_leader(5)
    partition = Partition(log, role, events.append, space_guard=space_guard)
    partition.assume(role, 0)
    return partition


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


@pytest.mark.parametrize(
    ("epoch", "code"), [(4, "FENCED_LEADER_EPOCH"), (6, "UNKNOWN_LEADER_EPOCH")]
)
def test_a_client_with_another_epoch_is_fenced(epoch: int, code: str) -> None:
    """KIP-320."""
    partition = open_partition()
    partition.check_epoch(-1)
    partition.check_epoch(5)
    with pytest.raises(KafkaError) as error:
        partition.check_epoch(epoch)
    assert code_of(error) is ErrorCode[code]


@pytest.mark.parametrize("records", [0, 3])
def test_a_leader_that_wrote_nothing_follows_a_leader_of_an_older_history(records: int) -> None:
    """The other leader has records of an epoch before this leader epoch, and leads again after
    it."""
    leader, follower = open_partition(), open_partition()
    for number in range(3):
        leader.append(make_batch(1), NOW)
        if number < records:
            follower.append(make_batch(1), NOW)
    follower.assume(sole_leader(6), 0)
    follower.assume(Role(7, 2, is_leader=False, isr=(1, 2)), 0)
    leader.assume(sole_leader(7), 0)
    leader.append(make_batch(1), NOW)
    for batch in read_batches(leader.log)[records:]:
        follower.append_fetched(memoryview(batch), 7, 0, 0, NOW)
    assert follower.log.log_end_offset == 4
    assert follower.log.leader_epochs.entries == [(5, 0), (7, 3)]


@pytest.mark.parametrize("epoch", [5, 7])
def test_an_answer_that_belongs_to_another_leader_epoch_is_ignored(epoch: int) -> None:
    leader, follower = open_partition(), open_partition()
    for _ in range(2):
        leader.append(make_batch(1), NOW)
    follower.append(make_batch(1), NOW)
    follower.assume(Role(6, 2, is_leader=False, isr=(1, 2)), 0)
    follower.append_fetched(memoryview(read_batches(leader.log)[1]), epoch, 2, 0, NOW)
    follower.truncate(5, 0, epoch)
    follower.restart_at(7, epoch)
    assert follower.log.log_end_offset == 1
    assert read_batches(follower.log) == read_batches(leader.log)[:1]
    follower.append_fetched(memoryview(read_batches(leader.log)[1]), 6, 2, 0, NOW)
    assert follower.log.log_end_offset == follower.watermark.offset == 2


def test_a_follower_begins_within_a_batch_as_its_leader_does() -> None:
    leader, follower = open_partition(), open_partition()
    leader.append(make_batch(3), NOW)
    leader.append(make_batch(2), NOW)
    leader.delete_records(2)
    follower.assume(Role(6, 2, is_leader=False, isr=(1, 2)), 0)
    follower.restart_at(leader.log.log_start_offset, 6)
    copied = memoryview(b"".join(read_batches(leader.log)))
    for _ in range(2):  # the second response repeats the first one
        follower.append_fetched(copied, 6, leader.watermark.offset, 2, NOW)
        assert read_batches(follower.log) == read_batches(leader.log)
        assert follower.log.log_start_offset == 2
        assert follower.log.log_end_offset == follower.watermark.offset == 5
        assert (follower.written.records, follower.written.all_bytes) == (5, len(copied))


@pytest.mark.parametrize("is_far_behind", [True, False])
def test_a_follower_that_writes_durably_reports_its_position_after_a_cut(
    is_far_behind: bool,
) -> None:
    """No append follows that would request the flush."""
    requested: list[Partition] = []
    follower = open_partition(rolled=requested, durability=FSYNC)
    for _ in range(3):
        follower.append(make_batch(1), NOW)
    follower.assume(Role(6, 2, is_leader=False, isr=(1, 2)), 0)
    requested.clear()
    if is_far_behind:
        follower.restart_at(85, 6)
    else:
        wait_for(lambda: follower.truncate(5, 2, 6))
    assert not follower.watermark.is_written
    assert requested == [follower]
    make_durable(follower)
    assert follower.watermark.is_written


@pytest.mark.parametrize("records", [1, 3])
def test_a_log_with_records_takes_no_batch_that_begins_below_its_end(records: int) -> None:
    leader, follower = open_partition(), open_partition()
    leader.append(make_batch(4), NOW)
    follower.append(make_batch(records), NOW)
    follower.assume(Role(6, 2, is_leader=False, isr=(1, 2)), 0)
    with pytest.raises(CorruptRecord, match=f"where the log ends at {records}"):
        follower.append_fetched(memoryview(read_batches(leader.log)[0]), 6, 0, 0, NOW)
    assert follower.log.log_end_offset == records


def test_followers_that_wait_learn_of_deleted_records() -> None:
    settled: list[Partition] = []
    log = open_partition().log
    partition = Partition(log, sole_leader(5), lambda each: None, settled.append)
    partition.assume(sole_leader(5), 0)
    partition.append(make_batch(4), NOW)
    settled.clear()
    partition.delete_records(3)
    assert settled == [partition]
    partition.delete_records(2)
    assert settled == [partition], "the log start did not move"


def test_followers_that_wait_learn_of_records_that_a_refused_proposal_has_held_back() -> None:
    settled: list[Partition] = []
    role = Role(5, 1, is_leader=True, isr=(1, 2), followers=(2, 3))
    partition = Partition(open_partition().log, role, lambda each: None, settled.append)
    partition.assume(role, 0)
    partition.append(make_batch(1), NOW)
    partition.propose_isr((1, 2, 3))
    partition.note_fetch(2, -1, 1, 0)
    assert partition.watermark.offset == 0
    settled.clear()
    partition.propose_isr(())
    assert partition.watermark.offset == 1
    assert settled == [partition]
    partition.propose_isr(())
    assert settled == [partition], "the high watermark did not move"


def test_records_are_deleted_up_to_an_offset_of_the_committed_log() -> None:
    partition = open_partition()
    partition.append(make_batch(4), NOW)
    assert partition.delete_records(0) == 0
    assert partition.delete_records(3) == 3
    for before in (-1, 5):
        with pytest.raises(KafkaError) as error:
            partition.delete_records(before)
        assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records(0) == 3


def test_a_follower_deletes_no_records_for_a_client() -> None:
    """It follows the log start of its leader."""
    partition = open_partition()
    partition.append(make_batch(4), NOW)
    partition.assume(Role(6, 2, is_leader=False, isr=(1, 2)), 0)
    with pytest.raises(KafkaError) as error:
        partition.delete_records(3)
    assert code_of(error) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log.log_start_offset == 0


def test_a_closed_segment_is_reported_once() -> None:
    rolled: list[Partition] = []
    partition = open_partition(rolled=rolled, segment_bytes=400)
    for _ in range(5):
        partition.append(make_batch(2), NOW)
    assert len(partition.log.segments) > 1
    assert rolled == [partition] * (len(partition.log.segments) - 1)


def test_flush_messages_is_kept_before_the_answer() -> None:
    partition = open_partition(flush_messages=3)
    partition.append(make_batch(2), NOW)
    assert partition.log.recovery_point == 0
    partition.append(make_batch(1), NOW)
    assert partition.log.recovery_point == 3


@pytest.mark.parametrize("marker", [False, True])
def test_flush_messages_is_kept_while_another_flush_is_under_way(marker: bool) -> None:
    """That one may have begun before the records came, and may not be over yet."""
    disk = MemoryDisk(ManualClock())
    partition = open_partition(disk, flush_messages=2, segment_bytes=400)
    log = partition.log
    for _ in range(4):
        partition.append(make_batch(1, size=150), NOW)
    partition.append(make_batch(1, size=150), NOW)
    job = log.begin_flush()
    assert job is not None
    if marker:
        end = partition.append_marker(7, 0, True, 0, NOW, transaction_version=0) + 1
    else:
        end = partition.append(make_batch(1, size=150), NOW).last_offset + 1
    assert log.recovery_point == end
    disk.crash()
    directory = LogDirectory(DATA, disk, ManualClock(), SeededRandom(1))
    directory.open(None, 1)
    assert directory.load_logs(lambda *_: LogConfig(), {TOPIC_ID})["t", 0].log_end_offset == end


def test_a_flush_that_ends_after_a_newer_one_takes_nothing_back() -> None:
    partition = open_partition(flush_messages=2)
    log = partition.log
    partition.append(make_batch(1), NOW)
    job = log.begin_flush()
    assert job is not None
    partition.append(make_batch(1), NOW)
    job.run()
    log.finish_flush(job)
    assert log.recovery_point == 2
    assert log.flushes.may_be_closed
    assert log.begin_flush() is None


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_flush_before_the_answer_takes_the_partition_offline(code: int) -> None:
    disk = MemoryDisk(ManualClock())
    partition = open_partition(disk, flush_messages=1)
    disk.fail("sync", code, suffix=".log")
    for _ in range(2):
        with pytest.raises(KafkaError) as error:
            partition.append(make_batch(1), NOW)
        assert code_of(error) is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.offline_reason is not None
    assert partition.log.broken


def test_without_descriptors_to_flush_a_batch_is_committed_or_waits() -> None:
    """It is in the log: a coordinator that reads the log after the error must find it there."""
    disk = MemoryDisk(ManualClock())
    partition = open_partition(disk, flush_messages=1)
    disk.fail("sync", errno.EMFILE, suffix=".log")
    with pytest.raises(KafkaError) as error:
        partition.append(make_batch(1), NOW)
    assert code_of(error) is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.offline_reason is None
    assert (partition.watermark.offset, partition.log.log_end_offset) == (1, 1)
    partition.append(make_batch(1), NOW)
    assert partition.log.recovery_point == 2

    partition.use_config(partition.log.config._replace(durability=FSYNC))
    disk.fail("sync", errno.EMFILE, suffix=".log")
    partition.append(make_batch(1), NOW)
    assert (partition.watermark.offset, partition.log.log_end_offset) == (2, 3)
    partition.log.flush()
    partition.note_flush()
    assert partition.watermark.offset == 3


def test_a_change_to_fsync_flushes_earlier_records() -> None:
    wanted: list[Partition] = []
    partition = open_partition(rolled=wanted)
    partition.use_config(partition.log.config._replace(durability=FSYNC))
    assert not wanted, "nothing is there"
    partition.use_config(LogConfig())
    partition.append(make_batch(1), NOW)
    partition.use_config(partition.log.config._replace(durability=FSYNC))
    assert wanted == [partition]


def test_a_flush_that_ends_well_after_another_failed_proves_nothing() -> None:
    disk = MemoryDisk(ManualClock())
    partition = open_partition(disk, flush_messages=2)
    partition.append(make_batch(1), NOW)
    job = partition.log.begin_flush()
    assert job is not None
    disk.fail("sync", errno.EIO, suffix=".log")
    with pytest.raises(KafkaError):
        partition.append(make_batch(1), NOW)
    job.run()
    partition.log.finish_flush(job)
    assert partition.log.recovery_point == 0
    assert not partition.log.flushes.may_be_closed


def test_a_flush_does_not_claim_records_that_another_flush_lost() -> None:
    """The device reports a failure to one sync only; the next sync succeeds."""
    disk = MemoryDisk(ManualClock())
    partition = open_partition(disk, flush_messages=2)
    partition.append(make_batch(1), NOW)
    job = partition.log.begin_flush()
    assert job is not None
    disk.fail("sync", errno.EIO, suffix=".log")
    with pytest.raises(OSError):
        job.run()
    with pytest.raises(KafkaError):
        partition.append(make_batch(1), NOW)
    assert partition.offline_reason is not None
    assert partition.log.recovery_point == 0


def test_a_full_disk_is_a_retriable_error_that_passes() -> None:
    disk = MemoryDisk(ManualClock(), capacity=1_500)
    partition = open_partition(disk)
    with pytest.raises(KafkaError) as error:
        for _ in range(100):
            partition.append(make_batch(2), NOW)
    assert code_of(error) is ErrorCode.KAFKA_STORAGE_ERROR
    assert error.value.code.retriable
    before = partition.log.log_end_offset
    disk.capacity = None
    assert partition.append(make_batch(2), NOW).base_offset == before


def test_a_failed_device_takes_the_partition_offline_for_good() -> None:
    disk = MemoryDisk(ManualClock())
    partition = open_partition(disk)
    disk.fail("write", errno.EIO, suffix=".log")
    for _ in range(2):
        with pytest.raises(KafkaError) as error:
            partition.append(make_batch(), NOW)
        assert code_of(error) is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.offline_reason is not None
    with pytest.raises(KafkaError):
        partition.read(0, 100, min_one=True)


def test_more_in_sync_replicas_than_there_are_refuse_acks_all() -> None:
    partition = open_partition(min_insync_replicas=2)
    with pytest.raises(KafkaError) as error:
        partition.append(make_batch(), NOW, acks_all=True)
    assert code_of(error) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.append(make_batch(), NOW).base_offset == 0
    with pytest.raises(KafkaError) as error:
        partition.append_marker(7, 0, True, 0, NOW, transaction_version=0)
    assert code_of(error) is ErrorCode.NOT_ENOUGH_REPLICAS


def begins_at(
    partition: Partition, sequence: int, *, producer_id: int | None = None, acks_all: bool = False
) -> ErrorCode:
    """Append a batch of an unknown producer; return its error, or `NONE`."""
    batch = make_batch(producer=(producer_id or 100 + sequence, 0, sequence))
    try:
        partition.append(batch, NOW, acks_all=acks_all)
    except KafkaError as refused:
        return refused.code
    return ErrorCode.NONE


def test_unknown_producers_of_a_new_leader_begin_at_zero() -> None:
    """A request to the last leader failed, and the next one must not overtake its repetition."""
    first, clock = Role(0, 1, True, (1, 2), (2,)), ManualClock()
    partition = open_partition(role=first)
    partition.log.producers.beginnings.clock_ms = clock.monotonic_ms
    assert begins_at(partition, 3) is ErrorCode.NONE
    partition.assume(first._replace(leader_epoch=6, is_leader=False, leader_id=2), 0)
    partition.assume(first._replace(leader_epoch=7), 0)
    assert begins_at(partition, 4) is ErrorCode.LEADER_NOT_AVAILABLE
    assert begins_at(partition, 0) is ErrorCode.NONE
    clock.now_ms += AWAITED_MS
    partition.assume(first._replace(leader_epoch=7, isr=(1,)), 0)
    assert begins_at(partition, 5) is ErrorCode.NONE  # no election


def test_an_unknown_producer_begins_with_its_rejected_batch() -> None:
    role = Role(0, 1, True, (1,), (2,))
    partition = open_partition(role=role, min_insync_replicas=2)
    rejected = begins_at(partition, 4, producer_id=7, acks_all=True)
    assert rejected is ErrorCode.NOT_ENOUGH_REPLICAS
    partition.assume(role._replace(isr=(1, 2)), 0)
    assert begins_at(partition, 9, acks_all=True) is ErrorCode.NONE  # another producer
    assert begins_at(partition, 5, producer_id=7) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert begins_at(partition, 4, producer_id=7) is ErrorCode.NONE
    assert begins_at(partition, 5, producer_id=7) is ErrorCode.NONE


STORAGE, NO_ERROR = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def codes_of(partition: Partition, *sequences: int, acks_all: bool = False) -> list[ErrorCode]:
    """Append batches of a producer that the log knows."""
    return [begins_at(partition, each, producer_id=7, acks_all=acks_all) for each in sequences]


def test_batches_behind_a_batch_without_room_get_its_error_until_it_is_repeated() -> None:
    disk, clock = MemoryDisk(ManualClock()), ManualClock()
    partition = open_partition(disk)
    partition.log.producers.beginnings.clock_ms = clock.monotonic_ms
    assert codes_of(partition, 0, 1) == [NO_ERROR] * 2
    disk.capacity = disk.used
    assert codes_of(partition, 2, 3, 4, 2, 3, 1) == [*[STORAGE] * 5, NO_ERROR]
    disk.capacity = None
    assert codes_of(partition, 3, 2, 3, 4) == [STORAGE, *[NO_ERROR] * 3]
    assert codes_of(partition, 6, 2**31 - 1) == [OUT_OF_ORDER] * 2
    disk.capacity = disk.used
    assert codes_of(partition, 5) == [STORAGE]
    disk.capacity = None
    clock.now_ms += AWAITED_MS
    assert codes_of(partition, 6) == [OUT_OF_ORDER], "its producer has given up that batch"


def test_a_run_without_room_is_repeated_from_its_first_batch() -> None:
    disk = MemoryDisk(ManualClock())
    partition = open_partition(disk)
    assert codes_of(partition, 0, 1) == [NO_ERROR] * 2
    assert partition.append_coalesced([memoryview(make_batch(producer=(7, 0, 2)))], NOW) == [2]
    disk.capacity = disk.used
    batches = [memoryview(make_batch(producer=(7, 0, sequence))) for sequence in (3, 4)]
    with pytest.raises(KafkaError):
        partition.append_coalesced(batches, NOW)
    assert codes_of(partition, 3, 4) == [STORAGE] * 2


def test_the_next_batches_wait_for_a_batch_that_found_no_descriptor() -> None:
    disk = MemoryDisk(ManualClock())
    partition = open_partition(disk, segment_bytes=200)
    assert codes_of(partition, 0, 1) == [NO_ERROR] * 2
    disk.fail("name", errno.EMFILE, suffix=".log")
    assert codes_of(partition, 2, 3) == [STORAGE] * 2
    assert codes_of(partition, 2, 3) == [NO_ERROR] * 2
    assert partition.is_online


def test_a_guard_that_rejects_writes_refuses_all_but_duplicates_before_their_sequence() -> None:
    space_guard = DiskSpaceGuard()
    partition = open_partition(space_guard=space_guard)
    assert codes_of(partition, 0, 1) == [NO_ERROR] * 2
    space_guard.rejects_writes = True
    assert codes_of(partition, 9, 1, 0, 2) == [STORAGE, NO_ERROR, NO_ERROR, STORAGE]
    with pytest.raises(KafkaError):
        partition.append(bytearray(b"short"), NOW)
    assert partition.log.log_end_offset == 2
    space_guard.rejects_writes = False
    assert codes_of(partition, 3, 2, 3) == [STORAGE, NO_ERROR, NO_ERROR]


def test_the_next_batches_wait_for_a_batch_that_found_too_few_replicas() -> None:
    role = Role(0, 1, True, (1, 2), (2,))
    partition = open_partition(role=role, min_insync_replicas=2)
    assert codes_of(partition, 0, acks_all=True) == [NO_ERROR]
    partition.assume(role._replace(isr=(1,)), 0)
    assert codes_of(partition, 1, acks_all=True) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    partition.assume(role, 0)
    too_few = ErrorCode.NOT_ENOUGH_REPLICAS
    assert codes_of(partition, 2, 1, 2, acks_all=True) == [too_few, NO_ERROR, NO_ERROR]


def test_a_batch_of_a_new_epoch_that_found_no_room_comes_first() -> None:
    disk = MemoryDisk(ManualClock())
    partition = open_partition(disk)
    assert codes_of(partition, 0) == [NO_ERROR]

    def code(epoch: int, sequence: int) -> ErrorCode:
        try:
            partition.append(make_batch(producer=(7, epoch, sequence)), NOW)
        except KafkaError as refused:
            return refused.code
        return NO_ERROR

    disk.capacity = disk.used
    assert [code(1, 0), code(1, 1)] == [STORAGE] * 2
    disk.capacity = None
    assert [code(1, 1), code(0, 2)] == [STORAGE, OUT_OF_ORDER]
    assert [code(1, 0), code(1, 1)] == [NO_ERROR] * 2


def test_a_producer_begins_with_the_batch_that_found_no_room() -> None:
    partition = open_partition()
    disk = partition.log.segments.active.open().file
    with pytest.MonkeyPatch.context() as full:
        full.setattr(type(disk), "write_at", _no_capacity)
        with pytest.raises(KafkaError):
            partition.append(make_batch(producer=(7, 0, 4)), NOW)
        assert begins_at(partition, 5, producer_id=7) is ErrorCode.KAFKA_STORAGE_ERROR
    assert begins_at(partition, 5, producer_id=7) is ErrorCode.KAFKA_STORAGE_ERROR
    assert begins_at(partition, 4, producer_id=7) is ErrorCode.NONE


def _no_capacity(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, "planted")


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.NONE])
def test_the_topics_codec_replaces_the_producers(codec: Codec) -> None:
    name = "uncompressed" if codec is Codec.NONE else codec.name.lower()
    partition = open_partition(compression_type=name)
    partition.append(make_batch(20, codec=Codec.ZSTD), NOW)
    (stored,) = read_batches(partition.log)
    assert read_header(stored).codec == codec


def test_a_batch_that_is_recompressed_is_checked_first() -> None:
    partition = open_partition(compression_type="gzip")
    batch = make_batch(3)
    batch[-1] ^= 1
    with pytest.raises(KafkaError) as error:
        partition.append(batch, NOW)
    assert code_of(error) is ErrorCode.CORRUPT_MESSAGE


def test_a_damaged_batch_is_reported_to_its_reader(caplog: pytest.LogCaptureFixture) -> None:
    partition = open_partition(segment_bytes=400)
    for _ in range(6):
        partition.append(make_batch(2), NOW)
    segment = partition.log.segments[0]
    segment.disk.open(segment.path(LOG)).write_at(8, bytes(4))  # the length of its first batch
    for read in (
        lambda: partition.read(0, 1_000, min_one=True),
        lambda: partition.read(0, 1_000, min_one=True),
        lambda: at_once(partition.at_time(0)),
    ):
        with pytest.raises(KafkaError) as error:
            read()
        assert code_of(error) is ErrorCode.CORRUPT_MESSAGE
    assert len(caplog.records) == 1
    assert partition.read(partition.log.segments[1].base_offset, 1_000, min_one=True) is not None


def begin_transaction(partition: Partition, producer_id: int, count: int = 1) -> None:
    verification = partition.start_verification(producer_id, 0, 0, NOW, supports_epoch_bump=False)
    batch = make_batch(count, producer=(producer_id, 0, 0), transactional=True)
    partition.append(batch, NOW, verification=verification)


def committed(partition: Partition, offset: int = 0) -> tuple[int, list[tuple[int, int]]]:
    """Return the count of records for read_committed, and the aborted transactions in them."""
    records = partition.read_committed(offset, 1 << 20, min_one=True)
    if records is None:
        return 0, []
    count = sum(header.records_count for header, _ in iter_batches(records.read()))
    records.release()
    return count, [entry[:2] for entry in records.aborted]


def test_read_committed_ends_at_the_first_open_transaction() -> None:
    partition = open_partition()
    partition.append(make_batch(2), NOW)
    assert committed(partition) == (2, [])
    begin_transaction(partition, 7, 3)
    partition.append(make_batch(1), NOW)
    assert (partition.last_stable_offset, partition.watermark.offset) == (2, 6)
    assert committed(partition) == (2, [])
    assert committed(partition, 2) == (0, [])
    assert partition.append_marker(7, 0, False, 0, NOW, transaction_version=0) == 6
    assert partition.last_stable_offset == 7
    assert committed(partition) == (7, [(7, 2)])
    assert committed(partition, 5) == (2, [(7, 2)])
    partition.append(make_batch(1), NOW)
    assert committed(partition, 7) == (1, [])


def test_a_read_that_fails_over_aborted_transactions_holds_no_file() -> None:
    disk = MemoryDisk(ManualClock())
    partition = open_partition(disk)
    begin_transaction(partition, 7, 3)
    partition.append_marker(7, 0, False, 0, NOW, transaction_version=0)
    segment = partition.log.segments.active
    assert segment.handle is not None
    assert segment.txn_index is not None
    segment.txn_index.entries = None  # as after a start, before the first read
    with pytest.raises(NotReady) as first:
        partition.read_committed(0, 1 << 20, min_one=True)
    assert segment.handle.readers == 0
    disk.fail("read", errno.EIO, suffix=TXN_INDEX)
    first.value.job.run()
    first.value.job.finish()
    assert first.value.job.failure is not None
    assert segment.handle.readers == 0


def test_a_marker_may_close_a_segment() -> None:
    rolled: list[Partition] = []
    partition = open_partition(rolled=rolled, segment_bytes=400)
    for producer_id in range(8):
        partition.append_marker(producer_id, 0, True, 0, NOW, transaction_version=0)
    assert len(partition.log.segments) > 1
    assert rolled == [partition] * (len(partition.log.segments) - 1)


def test_a_marker_counts_for_flush_messages() -> None:
    partition = open_partition(flush_messages=1)
    partition.append_marker(7, 0, True, 0, NOW, transaction_version=0)
    assert partition.log.recovery_point == 1


def test_a_marker_is_appended_after_a_truncation_below_the_start_of_the_counts() -> None:
    partition = open_partition()
    for _ in range(4):
        partition.append(make_batch(2), NOW)
    partition.written = WriteCounts(partition.log)  # as after a restart
    partition.assume(Role(6, 2, False, (2,)), 0)
    wait_for(lambda: partition.truncate(5, 2, 6))
    assert partition.log.log_end_offset == 2
    partition.assume(sole_leader(7), 0)
    assert partition.append_marker(7, 0, True, 0, NOW, transaction_version=0) == 2
    assert (partition.written.records, partition.written.bytes) == (0, 0)


def test_a_marker_that_the_disk_refuses_is_worth_a_retry() -> None:
    disk = MemoryDisk(ManualClock())
    partition = open_partition(disk)
    begin_transaction(partition, 7)
    disk.fail("write", errno.ENOSPC, suffix=".txnindex")
    with pytest.raises(KafkaError) as error:
        partition.append_marker(7, 0, False, 0, NOW, transaction_version=0)
    assert code_of(error) is ErrorCode.KAFKA_STORAGE_ERROR
    partition.append_marker(7, 0, False, 0, NOW, transaction_version=0)
    assert committed(partition) == (2, [(7, 0)])


def test_nothing_is_appended_while_space_is_kept_for_what_frees_some() -> None:
    space_guard, told = DiskSpaceGuard(), list[OSError]()
    log = open_partition().log
    partition = Partition(
        log, sole_leader(5), lambda _: None, note_shortage=told.append, space_guard=space_guard
    )
    begin_transaction(partition, 7)
    end = log.log_end_offset
    space_guard.rejects_writes = True
    for append in (
        lambda: partition.append(make_batch(1), NOW),
        lambda: partition.append_marker(7, 0, False, 0, NOW, transaction_version=0),
    ):
        with pytest.raises(OutOfCapacityError, match="No space left"):
            append()
    assert partition.append_coalesced([memoryview(make_batch(1))], NOW) == []
    assert (log.log_end_offset, len(told)) == (end, 2)
    assert partition.read(0, 1000, min_one=True) is not None
    assert partition.delete_records(end) == end
    space_guard.rejects_writes = False
    partition.append_marker(7, 0, False, 0, NOW, transaction_version=0)
    partition.append(make_batch(1), NOW)
    assert partition.append_coalesced([memoryview(make_batch(1))], NOW) == [end + 2]


def test_a_deleted_topic_takes_no_marker_and_begins_no_transaction() -> None:
    partition = open_partition()
    partition.retire()
    for action in (
        lambda: partition.append_marker(7, 0, True, 0, NOW, transaction_version=0),
        lambda: partition.start_verification(7, 0, 0, NOW, supports_epoch_bump=True),
        lambda: partition.read_committed(0, 100, min_one=True),
    ):
        with pytest.raises(KafkaError) as error:
            action()
        assert code_of(error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def in_transaction(partition: Partition, producer_id: int, sequence: int = 0) -> int:
    producer = producer_id, 0, sequence
    taken = partition.start_verification(*producer, NOW, supports_epoch_bump=False)
    batch = make_batch(producer=producer, transactional=True)
    return partition.append(batch, NOW, verification=taken).base_offset


def end(partition: Partition, producer_id: int, *, commit: bool) -> int:
    return partition.append_marker(producer_id, 0, commit, 0, NOW, transaction_version=0)


def make_durable(partition: Partition) -> None:
    partition.log.flush()
    partition.note_flush()


def committed_bytes(partition: Partition) -> int:
    found = partition.read_committed(partition.log.log_start_offset, 1 << 20, min_one=True)
    if found is None:
        return 0
    found.release()
    return found.size


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_unstable_until_its_marker_is_durable(commit: bool) -> None:
    partition = open_partition(durability="fsync")
    first = in_transaction(partition, 7)
    make_durable(partition)
    assert end(partition, 7, commit=commit) == 1
    assert (partition.last_stable_offset, partition.watermark.offset) == (first, 1)
    assert committed_bytes(partition) == 0
    make_durable(partition)
    assert partition.last_stable_offset == partition.watermark.offset == 2
    found = partition.read_committed(0, 1 << 20, min_one=True)
    assert found is not None
    found.release()
    assert [(entry.producer_id, entry.first_offset) for entry in found.aborted] == (
        [] if commit else [(7, first)]
    )


def test_the_first_transaction_that_is_not_durable_bounds_the_last_stable_offset() -> None:
    """In any order of their ends, and with other transactions open."""
    partition = open_partition(durability="fsync")
    for producer_id in (7, 8, 9):
        in_transaction(partition, producer_id)
    make_durable(partition)
    end(partition, 8, commit=True)
    end(partition, 7, commit=True)
    assert partition.last_stable_offset == 0
    job = partition.log.begin_flush()
    assert job is not None
    in_transaction(partition, 7, 1)
    end(partition, 9, commit=True)
    job.run()
    partition.log.finish_flush(job)
    partition.note_flush()
    assert (partition.last_stable_offset, partition.watermark.offset) == (2, 5)
    make_durable(partition)
    assert partition.last_stable_offset == 5
    end(partition, 7, commit=False)
    assert partition.last_stable_offset == 5
    make_durable(partition)
    assert partition.last_stable_offset == partition.watermark.offset == 8


def test_a_flush_up_to_a_marker_does_not_commit_the_marker() -> None:
    """It began before the marker was appended, and ends where the marker lies."""
    partition = open_partition(durability="fsync")
    in_transaction(partition, 7)
    job = partition.log.begin_flush()
    assert job is not None
    end(partition, 7, commit=True)
    job.run()
    partition.log.finish_flush(job)
    partition.note_flush()
    assert (partition.last_stable_offset, partition.watermark.offset) == (0, 1)
    make_durable(partition)
    assert partition.last_stable_offset == partition.watermark.offset == 2


@pytest.mark.parametrize("durability", ["page-cache", "fsync"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_unstable_until_the_followers_have_its_marker(
    durability: str, commit: bool
) -> None:
    """Also for the next leader, which alone may have the marker."""
    partition, next_leader = open_partition(durability=durability), open_partition()
    partition.assume(Role(8, 1, True, (1, 2), (2,)), 0)
    next_leader.assume(Role(8, 1, False, (1, 2)), 0)

    def replicate(end_offset: int) -> None:
        make_durable(partition)
        partition.note_fetch(2, 1, end_offset, 0)

    in_transaction(partition, 7)
    replicate(1)
    end(partition, 7, commit=commit)
    make_durable(partition)
    assert (partition.last_stable_offset, partition.watermark.offset) == (0, 1)
    assert committed_bytes(partition) == 0
    found = partition.log.read(0, 1 << 20, end_offset=2)
    assert found is not None
    next_leader.append_fetched(memoryview(found.read()), 8, 1, 0, NOW)
    found.release()
    assert (next_leader.last_stable_offset, next_leader.watermark.offset) == (0, 1)
    next_leader.assume(Role(9, 2, True, (2, 1), (1,)), 0)
    assert next_leader.last_stable_offset == 0
    next_leader.note_fetch(1, 1, 2, 0)
    assert next_leader.last_stable_offset == 2
    replicate(2)
    assert partition.last_stable_offset == partition.watermark.offset == 2


def test_a_follower_ends_a_transaction_when_its_marker_is_committed() -> None:
    leader, follower = open_partition(), open_partition()
    in_transaction(leader, 7)
    end(leader, 7, commit=True)
    follower.assume(Role(6, 2, is_leader=False, isr=(1, 2)), 0)
    copied = memoryview(b"".join(read_batches(leader.log)))
    follower.append_fetched(copied, 6, 1, 0, NOW)
    assert follower.log.last_stable_offset == 0
    follower.append_fetched(memoryview(b""), 6, 2, 0, NOW)
    assert follower.log.last_stable_offset == 2


def test_where_appends_commit_a_transaction_is_over_with_its_marker() -> None:
    partition = open_partition()
    in_transaction(partition, 7)
    end(partition, 7, commit=True)
    assert partition.last_stable_offset == partition.watermark.offset == 2
    assert partition.log.recovery_point == 0


def test_a_topic_that_no_longer_waits_for_the_device_holds_no_transaction_back() -> None:
    partition = open_partition(durability="fsync")
    in_transaction(partition, 7)
    end(partition, 7, commit=True)
    partition.use_config(LogConfig())
    partition.append(make_batch(), NOW)
    assert partition.last_stable_offset == partition.watermark.offset == 3


def test_a_marker_counts_neither_as_a_record_nor_as_its_bytes() -> None:
    partition = open_partition()
    begin_transaction(partition, 7, 3)
    records, size = partition.written.records, partition.written.bytes
    assert (records, size) == (3, partition.log.size)
    for commit in (False, True):
        partition.append_marker(7, 0, commit, 0, NOW, transaction_version=0)
        assert (partition.written.records, partition.written.bytes) == (records, size)
    assert partition.written.all_bytes == partition.log.size > size


def test_records_that_the_table_lacks_are_deleted_by_force_only() -> None:
    partition = open_partition(table_enable=True, table_archived_offsets=("0:2",))
    partition.append(make_batch(4), NOW)
    assert partition.delete_records(2) == 2
    with pytest.raises(KafkaError, match="has the offsets below 2 only") as error:
        partition.delete_records(3)
    assert code_of(error) is ErrorCode.POLICY_VIOLATION
    assert partition.delete_records(3, force=True) == 3
    assert partition.delete_records(3) == 3, "deleted already"


def test_records_that_the_table_lacks_are_not_compacted() -> None:
    partition = open_partition(table_enable=True, table_archived_offsets=("0:2",))
    partition.append(make_batch(4), NOW)
    assert (partition.last_stable_offset, partition.compactable_end) == (4, 2)
    partition.use_config(LogConfig())
    assert partition.compactable_end == 4


def test_a_minimum_that_is_raised_above_the_isr_is_an_event() -> None:
    """A coordinator that loads its records waits for their commit no longer."""
    directory = LogDirectory(DATA, MemoryDisk(ManualClock()), ManualClock(), SeededRandom(1))
    directory.open(None, 1)
    log = create_log(directory, "t", 0, TOPIC_ID, LogConfig())
    events: list[bool] = []
    partition = Partition(
        log,
        Role(5, 1, is_leader=True, isr=(1,), followers=(2,)),
        lambda _: None,
        lambda changed: events.append(changed.watermark.is_short),
    )
    partition.assume(partition.role, 0)
    events.clear()
    partition.use_config(LogConfig(min_insync_replicas=2))
    assert events == [True]
