"""When a snapshot of the metadata is due, and the failures of writing one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lakelog.metadata.errors import MetadataError, MetadataFull, MetadataUnavailable
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerRecord, ConfigRecord, Record, ResourceType
from lakelog.metadata.snapshots import Snapshots
from lakelog.metadata.store.api import Snapshot, UnreservedSpace
from lakelog.runtime.aio import AsyncioTasks
from memory_metadata import MemoryMetadata

MINIMUM = 1000


class Store(MemoryMetadata):
    """Keeps the ends of snapshots; waits for `gate` and fails with `error` if they are set."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[int] = []
        self.error: MetadataError | None = None
        self.gate: asyncio.Event | None = None

    async def write_snapshot(self, snapshot: Snapshot) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.ends.append(snapshot.end)


class Space(UnreservedSpace):
    def __init__(self) -> None:
        self.times_full = 0

    def note_full(self) -> None:
        self.times_full += 1


class World:
    def __init__(self) -> None:
        self.store = Store()
        self.space = Space()
        self.tasks = AsyncioTasks(asyncio.get_running_loop())
        self.snapshots = Snapshots(self.store, self.tasks, self.space)


def play(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        world = World()
        try:
            await asyncio.wait_for(scenario(world), 60)
        finally:
            world.tasks.close()

    asyncio.run(whole())


def changes(count: int) -> tuple[Record, ...]:
    return (ConfigRecord(ResourceType.TOPIC, "orders", "retention.ms", "1"),) * count


def test_a_snapshot_is_due_after_the_minimum_of_records() -> None:
    async def scenario(world: World) -> None:
        image = MetadataImage(end=7)
        world.snapshots.note_replayed(changes(MINIMUM - 1), image)
        world.snapshots.write_if_due(image)
        await world.snapshots.close()
        assert world.store.ends == []
        world.snapshots.note_replayed(changes(1), image)
        world.snapshots.write_if_due(image)
        await world.snapshots.close()
        assert world.store.ends == [7]

    play(scenario)


def test_a_start_of_a_broker_costs_as_much_as_all_partitions(image: MetadataImage) -> None:
    """Its replay checks the leadership of each partition."""

    async def scenario(world: World) -> None:
        restart = BrokerRecord(1, bytes([1]) * 16, 1, (), "rack-1")
        needed = -(-MINIMUM // (1 + image.partition_count))
        world.snapshots.note_replayed((restart,) * (needed - 1), image)
        world.snapshots.write_if_due(image)
        assert world.store.ends == []
        world.snapshots.note_replayed((restart,), image)
        world.snapshots.write_if_due(image)
        await world.snapshots.close()
        assert world.store.ends == [image.end]

    play(scenario)


def test_a_loaded_snapshot_restarts_the_count() -> None:
    async def scenario(world: World) -> None:
        image = MetadataImage(end=7)
        world.snapshots.note_replayed(changes(MINIMUM), image)
        world.snapshots.note_loaded()
        world.snapshots.write_if_due(image)
        await world.snapshots.close()
        assert world.store.ends == []

    play(scenario)


def test_one_snapshot_is_written_at_a_time() -> None:
    async def scenario(world: World) -> None:
        world.store.gate = asyncio.Event()
        first, second = MetadataImage(end=7), MetadataImage(end=8)
        world.snapshots.note_replayed(changes(MINIMUM), first)
        world.snapshots.write_if_due(first)
        await asyncio.sleep(0)
        world.snapshots.note_replayed(changes(MINIMUM), second)
        world.snapshots.write_if_due(second)
        world.store.gate.set()
        await world.snapshots.close()
        assert world.store.ends == [7]
        world.snapshots.write_if_due(second)
        await world.snapshots.close()
        assert world.store.ends == [7, 8], "its cost was kept"

    play(scenario)


@pytest.mark.parametrize(
    ("error", "times_full", "logged"),
    [(MetadataFull("no space"), 1, False), (MetadataUnavailable("the store is gone"), 0, True)],
)
def test_the_broker_survives_a_snapshot_that_cannot_be_written(
    error: MetadataError, times_full: int, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        world.store.error = error
        image = MetadataImage(end=7)
        world.snapshots.note_replayed(changes(MINIMUM), image)
        world.snapshots.write_if_due(image)
        await world.snapshots.close()
        assert world.space.times_full == times_full

    with caplog.at_level(logging.WARNING):
        play(scenario)
    assert ("metadata snapshot not written: the store is gone" in caplog.text) is logged
