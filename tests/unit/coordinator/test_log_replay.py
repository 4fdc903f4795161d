from __future__ import annotations

import pytest

from coordinator_members import commit_codes, committed, join
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.records import OffsetCommitKey, OffsetRecord, encode_record
from lakelog.records.builder import BatchBuilder
from lakelog.records.errors import CorruptRecord

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
