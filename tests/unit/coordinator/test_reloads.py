from __future__ import annotations

import asyncio
from itertools import chain, repeat

from coordinator_members import commit_codes, committed
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode, KafkaError


@in_virtual_time()
async def test_after_a_storage_error_a_partition_is_loaded_again_until_it_works(
    setup: Setup,
) -> None:
    """The reload is retried while the disk is full or no descriptor is left."""
    await commit_codes(setup, {("orders", 0): 5})
    failures = iter([True] * 5)
    read = setup.log.read

    async def failing(partition: int, offset: int) -> bytes:
        if next(failures, False):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return await read(partition, offset)

    setup.log.read = failing  # type: ignore[method-assign]
    setup.log.fate = chain(["lost"], repeat("ok")).__next__
    await commit_codes(setup, {("orders", 0): 6})
    assert setup.coordinator.partitions == []
    await asyncio.sleep(10)
    assert setup.coordinator.partitions == [0]
    assert await committed(setup) == {("orders", 0): 5}


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
