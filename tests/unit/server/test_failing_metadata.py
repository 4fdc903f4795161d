"""A device that fails the metadata log: the page cache is not trusted any more."""

from __future__ import annotations

import asyncio
import errno

from doubles.disk import MemoryDisk
from doubles.sqlite_metadata import SimulatedMetadata
from lakelog.metadata.controller.topics import NewTopic, plan_create_topics
from lakelog.metadata.store.api import MetadataStore
from lakelog.metadata.store.embedded import METADATA_FILE
from lakelog.runtime.aio import AsyncioTasks
from lakelog.storage.marks import BOOT_ID
from socketless_broker import SocketlessBroker
from storage_kit import DATA, ManualClock
from unit.server.test_full_disk import InPlace


def test_a_failed_commit_of_metadata_removes_the_boot_id() -> None:
    """SQLite writes its files past the broker's own `Disk`, as here, where they have another."""

    async def main() -> None:
        disk, device = MemoryDisk(ManualClock()), MemoryDisk(ManualClock())
        device.make_dirs(DATA)

        def metadata(_: AsyncioTasks) -> MetadataStore:
            store = SimulatedMetadata(device, DATA / METADATA_FILE)
            return store.handle(InPlace(asyncio.get_running_loop()), lambda: True)

        broker = SocketlessBroker(DATA, disk, metadata=metadata)
        await broker.start()
        assert disk.copy_after_crash().exists(DATA / BOOT_ID)

        device.fail("sync", errno.EIO, suffix="-wal")
        server = broker.server
        task = asyncio.ensure_future(
            server.broker.metadata.submit(
                lambda image: plan_create_topics(
                    image,
                    [NewTopic("t", 1, 1)],
                    broker=server.broker.config,
                    random=server.broker.random,
                )
            )
        )
        await asyncio.wait([task])
        assert task.exception() is not None
        assert not disk.copy_after_crash().exists(DATA / BOOT_ID)
        broker.tasks.close()

    asyncio.run(asyncio.wait_for(main(), 60))
