from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from doubles.disk import MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.fetch_session import FetchTarget
from lakelog.replica.followers import FollowerId
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.server.fetches.reading import (
    NO_RECORDS,
    DivergedLog,
    ReadResult,
    ReadWait,
    check_divergence,
    read,
)
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.segments.handles import LogSlice
from memory_broker import MemoryBroker
from storage_kit import (
    DATA,
    NOW,
    TOPIC_ID,
    ManualClock,
    append_in_transaction,
    append_marker,
    create_log,
    make_batch,
    sole_leader,
)


def target(
    offset: int, *, max_bytes: int = 1 << 20, epoch: int = -1, last_epoch: int = -1
) -> FetchTarget:
    return FetchTarget("orders", 0, offset, max_bytes, epoch, last_epoch)


def result_of(
    world: MemoryBroker, target: FetchTarget, left: int = 1 << 20, *, committed: bool = False
) -> ReadResult:
    return read(world.partition("orders"), target, left, committed=committed, min_one=False)


def size(
    world: MemoryBroker, target: FetchTarget, left: int = 1 << 20, *, committed: bool = False
) -> int:
    """Return the bytes of the records that a read returns."""
    result = result_of(world, target, left, committed=committed)
    assert not isinstance(result, KafkaError)
    result.release()
    return result.size if isinstance(result, LogSlice) else 0


@pytest.fixture
def filled(world: MemoryBroker) -> MemoryBroker:
    """`orders` with two equal batches of three records."""
    world.create("orders")
    for _ in range(2):
        world.append("orders", count=3)
    return world


def test_the_smaller_limit_counts(filled: MemoryBroker) -> None:
    whole = size(filled, target(0))
    assert size(filled, target(0, max_bytes=whole - 1)) == whole // 2
    assert size(filled, target(0), whole - 1) == whole // 2
    assert size(filled, target(0), 10) == 0


def test_read_committed_ends_before_an_open_transaction(filled: MemoryBroker) -> None:
    before = size(filled, target(0))
    log = filled.partition("orders").log
    append_in_transaction(log, (7, 0, 0), now_ms=filled.clock.wall_ms())
    filled.partition("orders").note_flush()
    assert size(filled, target(0), committed=True) == before < size(filled, target(0))


def test_epochs_of_leader_and_reader_are_compared(filled: MemoryBroker) -> None:
    epoch = filled.partition("orders").leader_epoch
    assert size(filled, target(0, epoch=epoch, last_epoch=epoch)) > 0
    error = result_of(filled, target(0, epoch=epoch + 1))
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.UNKNOWN_LEADER_EPOCH
    filled.partition("orders").leader_epoch = epoch + 2
    filled.append("orders")
    assert isinstance(result_of(filled, target(7, last_epoch=epoch)), DivergedLog)


def test_the_end_of_the_log_is_a_wait_for_records(filled: MemoryBroker) -> None:
    assert result_of(filled, target(6)) is NO_RECORDS


def test_a_wait_for_a_job_is_released_by_abandoning_it() -> None:
    abandoned: list[int] = []
    job: Any = SimpleNamespace(abandon=lambda: abandoned.append(1))
    ReadWait(job).release()
    assert abandoned == [1]


def test_a_slice_has_its_aborted_transactions(filled: MemoryBroker) -> None:
    log = filled.partition("orders").log
    append_in_transaction(log, (7, 0, 0), now_ms=filled.clock.wall_ms())
    append_marker(log, 7, 0, commit=False)
    filled.partition("orders").note_flush()
    for committed, aborted in ((True, [(7, 6)]), (False, [])):
        records = result_of(filled, target(0), committed=committed)
        assert isinstance(records, LogSlice)
        records.release()
        assert [(entry.producer_id, entry.first_offset) for entry in records.aborted] == aborted


def test_a_read_notes_the_position_of_a_follower_once_and_not_after_an_error(
    filled: MemoryBroker,
) -> None:
    partition = filled.partition("orders")
    partition.assume(Role(partition.leader_epoch, 1, True, (1, 2), (2,)), 0)
    follower = partition.followers.get(2)
    assert follower is not None

    def end_after(offset: int, fetched_at: float | None) -> int:
        position = target(offset)
        read(
            partition,
            position,
            1 << 20,
            committed=False,
            follower=FollowerId(2, 4),
            fetched_at=fetched_at,
        )
        return follower.end_offset

    assert end_after(7, 1.0) == -1, "it is beyond the end of the log"
    assert end_after(6, None) == -1
    assert end_after(6, 1.0) == 6
    assert follower.fetched_ms == 1000


def open_partition(
    disk: MemoryDisk | None = None, rolled: list[Partition] | None = None, **config: object
) -> Partition:
    disk = disk or MemoryDisk(ManualClock())
    directory = LogDirectory(DATA, disk, ManualClock(), SeededRandom(1))
    directory.open(None, 1)
    log = create_log(directory, "t", 0, TOPIC_ID, LogConfig(**config))  # type: ignore[arg-type]
    events = rolled if rolled is not None else []
    partition = Partition(log, sole_leader(5), events.append)
    partition.assume(sole_leader(5), 0)
    return partition


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


def test_a_reader_of_another_log_gets_the_offset_of_divergence() -> None:
    """KIP-595: epoch 5 has the offsets to 4, epoch 8 those from there to 6."""
    partition = open_partition()
    partition.append(make_batch(4), NOW)
    partition.assume(sole_leader(8), 0)
    partition.append(make_batch(2), NOW)

    check_divergence(partition, 4, 5)
    check_divergence(partition, 3, 5)
    check_divergence(partition, 6, 8)
    for offset, epoch in ((5, 5), (6, 5), (4, 7), (6, 7)):
        with pytest.raises(DivergedLog) as diverged:
            check_divergence(partition, offset, epoch)
        assert (diverged.value.epoch, diverged.value.end_offset) == (5, 4)
    with pytest.raises(KafkaError) as error:
        check_divergence(partition, 6, 9)
    assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE
    partition.delete_records(5)
    with pytest.raises(KafkaError) as error:
        check_divergence(partition, 4, 5)
    assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE
