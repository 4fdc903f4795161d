"""A broker that was killed when its disk was full starts again, and retention frees space."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.topics import NewTopic, plan_create_topics
from lakelog.metadata.store.api import MetadataStore
from lakelog.replica.partition import Partition
from lakelog.runtime.aio import AsyncioTasks
from lakelog.server.app import StartError
from lakelog.storage.reserve import RESERVE
from lakelog.testing.disk import MemoryDisk
from lakelog.testing.sqlite_metadata import SimulatedMetadata
from socketless_broker import SocketlessBroker
from storage_kit import DATA, NOW, ManualClock, make_batch

T = TypeVar("T")
SETTINGS = {
    "log_retention_bytes": "100000",
    "log_segment_delete_delay_ms": "0",
    "log_retention_check_interval_ms": "3600000",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
}


class InPlace(AsyncioTasks):
    """SQLite stays in one thread."""

    def offload(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:
        done = asyncio.get_running_loop().create_future()
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - it is the caller's
            done.set_exception(error)
        return done


def broker_on(disk: MemoryDisk, reserve: int) -> SocketlessBroker:
    def metadata(_: AsyncioTasks) -> MetadataStore:
        store = SimulatedMetadata(disk, DATA / "metadata.db")
        return store.handle(InPlace(asyncio.get_running_loop()), lambda: True)

    size = {"lakelog_disk_reserve_bytes": str(reserve)}
    return SocketlessBroker(DATA, disk, metadata=metadata, **SETTINGS, **size)


async def fill(broker: SocketlessBroker, disk: MemoryDisk) -> None:
    server = broker.server
    (created,) = await server.broker.metadata.submit(
        lambda image: plan_create_topics(
            image,
            [NewTopic("t", 1, 1, configs=[("internal.segment.bytes", "50000")])],
            broker=server.broker.config,
            random=server.broker.random,
        )
    )
    assert not created.error, created
    partition = server.broker.partitions.find("t", 0)
    disk.capacity = disk.used + 1_000_000
    with pytest.raises(KafkaError, match="No space left"):
        while True:
            partition.append(make_batch(1, size=10_000), NOW)
    disk.capacity = disk.used


def partition_of(broker: SocketlessBroker) -> Partition:
    return broker.server.broker.partitions.find("t", 0)


@pytest.mark.parametrize("reserve", [1 << 20, 0])
def test_a_start_on_a_full_disk_needs_the_reserve(reserve: int) -> None:
    async def main() -> None:
        disk = MemoryDisk(ManualClock(), capacity=64 << 20)
        first = broker_on(disk, reserve)
        await first.start()
        first.server._reserve.renew()
        await fill(first, disk)
        disk.kill()
        first.tasks.close()
        second = broker_on(disk, reserve)
        if not reserve:
            with pytest.raises(StartError, match=r"full|space"):
                await second.start()
            second.tasks.close()
            return
        await second.start()
        assert not disk.exists(DATA / RESERVE)
        for _ in range(2):
            second.server._maintenance._retain()
        assert partition_of(second).log.size <= 150_000
        partition_of(second).append(make_batch(1, size=10_000), NOW)
        disk.capacity = 64 << 20
        second.server._reserve.renew()
        assert disk.size(DATA / RESERVE) == reserve
        await second.stop()

    asyncio.run(asyncio.wait_for(main(), 120))
