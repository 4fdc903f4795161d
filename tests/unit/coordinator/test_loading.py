from __future__ import annotations

import asyncio
from itertools import chain, repeat

import pytest

from coordinator_members import commit_codes, committed, join
from group_setup import Setup, in_virtual_time, run
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.records import OffsetCommitKey, OffsetRecord, encode_record
from lakelog.coordinator.group.shard import GroupShard
from lakelog.records.batch import CorruptRecord
from lakelog.records.builder import BatchBuilder

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


@in_virtual_time()
async def test_an_unreadable_partition_is_not_served(setup: Setup) -> None:
    await commit_codes(setup, {("orders", 0): 5})
    damaged = bytearray(setup.log.batches[0][0])
    damaged[-1] ^= 1
    setup.log.batches[0][0] = bytes(damaged)
    setup.coordinator.close()
    with pytest.raises(CorruptRecord):
        await setup.coordinator.load_partition(0, 0)
    assert (await join(setup)).error_code == NOT_COORDINATOR


@in_virtual_time()
async def test_a_failing_disk_while_loading_is_the_callers_to_know(setup: Setup) -> None:
    setup.coordinator.close()

    async def start_offset(partition: int) -> int:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    setup.log.start_offset = start_offset  # type: ignore[method-assign]
    with pytest.raises(KafkaError):
        await setup.coordinator.load_partition(0, 0)
    assert setup.coordinator.partitions == []


@in_virtual_time()
async def test_records_of_other_kinds_and_tombstones_are_replayed_in_order(
    setup: Setup,
) -> None:
    await commit_codes(setup, {("orders", 0): 5, ("orders", 1): 6})
    key = OffsetCommitKey(group="readers", topic="orders", partition=0)
    builder = BatchBuilder()
    builder.append(1, b"\x00\x63unknown", b"\x00\x00")
    builder.append(1, *encode_record(OffsetRecord(key, None)))
    await setup.log.append(0, builder.build())
    await setup.restart()
    assert await committed(setup) == {("orders", 1): 6}


def fail_reads(setup: Setup, times: int, error: Exception) -> None:
    """Have the next reads of the log fail."""
    failures, read = iter([True] * times), setup.log.read

    async def failing(partition: int, offset: int) -> bytes:
        if next(failures, False):
            raise error
        return await read(partition, offset)

    setup.log.read = failing  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), "coordinator_load_failed"),
        (RuntimeError("planted"), "task_failed"),
    ],
    ids=["disk", "bug"],
)
def test_a_partition_is_loaded_again_until_it_works(
    error: Exception, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk is full, no descriptor is left, or no code expects the exception."""

    async def scenario(setup: Setup) -> None:
        await commit_codes(setup, {("orders", 0): 5})
        fail_reads(setup, 5, error)
        setup.log.fate = chain(["lost"], repeat("ok")).__next__
        await commit_codes(setup, {("orders", 0): 6})
        assert setup.coordinator.partitions == []
        await asyncio.sleep(10)
        assert setup.coordinator.partitions == [0]
        assert await committed(setup) == {("orders", 0): 5}

    run(scenario)
    names = [each.__dict__["event"] for each in caplog.records]
    assert names == ["coordinator_append_failed", name], "one line for all attempts"


def test_a_first_load_that_fails_unexpectedly_is_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(setup: Setup) -> None:
        await commit_codes(setup, {("orders", 0): 5})
        setup.coordinator.unload_partition(0)
        fail_reads(setup, 3, RuntimeError("planted"))
        await setup.coordinator.load_partition(0, 1)
        assert setup.coordinator.partitions == []
        await asyncio.sleep(10)
        assert await committed(setup) == {("orders", 0): 5}

    run(scenario)
    assert [each.__dict__["event"] for each in caplog.records] == ["task_failed"]


def test_a_load_whose_begin_fails_unexpectedly_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without its timers, the shard would end no session and no transaction."""

    async def scenario(setup: Setup) -> None:
        await commit_codes(setup, {("orders", 0): 5})
        setup.coordinator.unload_partition(0)
        with monkeypatch.context() as planted:
            planted.setattr(GroupShard, "loaded", lambda *_: 1 / 0)
            await setup.coordinator.load_partition(0, 1)
            assert setup.coordinator.partitions == []
        await asyncio.sleep(10)
        assert await committed(setup) == {("orders", 0): 5}

    run(scenario)


@in_virtual_time()
async def test_loads_that_fail_in_turn_have_one_retry(setup: Setup) -> None:
    setup.coordinator.unload_partition(0)
    fail_reads(setup, 100, RuntimeError("planted"))
    for _ in range(3):
        await setup.coordinator.load_partition(0, 1)
    loads = 0

    async def count(partition: int, leader_epoch: int) -> None:
        nonlocal loads
        loads += 1

    setup.coordinator._host._reloads._load = count
    await asyncio.sleep(10)
    assert loads == 1


@in_virtual_time()
async def test_a_partition_that_is_unloaded_is_not_loaded_again(setup: Setup) -> None:
    async def failing(partition: int, offset: int) -> bytes:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    read, setup.log.read = setup.log.read, failing  # type: ignore[method-assign]
    setup.log.fate = chain(["lost"], repeat("ok")).__next__
    await commit_codes(setup, {("orders", 0): 6})
    await asyncio.sleep(0.5)
    setup.coordinator.close()
    setup.log.read = read  # type: ignore[method-assign]
    await asyncio.sleep(10)
    assert setup.coordinator.partitions == []
