from __future__ import annotations

import pytest

from doubles.zookeeper import Faults
from lakelog.metadata.errors import MetadataCorrupt, MetadataUnavailable
from lakelog.metadata.store.api import Snapshot
from lakelog.metadata.store.zookeeper.session import Create, Disconnected, Put
from lakelog.metadata.store.zookeeper.snapshots import Snapshots
from zookeeper_kit import LAYOUT, World, in_world

CHAIN = b"c" * 16


def test_chunks_of_a_failed_attempt_are_deleted_by_the_next_snapshot() -> None:
    async def work(world: World) -> None:
        handle = await world.handle()
        term, snapshots = await handle.take_term(), Snapshots(handle.session, LAYOUT)
        await handle.session.write(Create(LAYOUT.generation("0003-1")))
        await handle.session.write(Create(LAYOUT.chunk("0003-1", 0), b"left over"))
        await snapshots.write(Snapshot(5, b"s" * 1_200_000), CHAIN, term)
        await snapshots.write(Snapshot(9, b"t" * 700_000), CHAIN, term)
        pointer = await snapshots.pointer()
        assert await handle.session.children(LAYOUT.snapshots) == [pointer.name]
        assert (pointer.end, pointer.chunks) == (9, 2)
        assert await snapshots.load(pointer) == b"t" * 700_000

    in_world(work)


def test_a_superseded_controller_replaces_no_snapshot() -> None:
    async def work(world: World) -> None:
        old, new = await world.handle(), await world.handle()
        term = await old.take_term(1)
        await new.take_term(2)
        with pytest.raises(MetadataUnavailable, match="another controller"):
            await Snapshots(old.session, LAYOUT).write(Snapshot(5, b"s"), CHAIN, term)
        assert (await Snapshots(new.session, LAYOUT).pointer()).end == 0

    in_world(work)


def test_a_reader_of_a_replaced_snapshot_finds_out() -> None:
    async def work(world: World) -> None:
        handle = await world.handle()
        term, snapshots = await handle.take_term(), Snapshots(handle.session, LAYOUT)
        await snapshots.write(Snapshot(5, b"s"), CHAIN, term)
        pointer = await snapshots.pointer()
        await snapshots.write(Snapshot(6, b"t"), CHAIN, term)
        assert await snapshots.load(pointer) is None

    in_world(work)


def test_a_damaged_chunk_is_detected() -> None:
    async def work(world: World) -> None:
        handle = await world.handle()
        term, snapshots = await handle.take_term(), Snapshots(handle.session, LAYOUT)
        await snapshots.write(Snapshot(5, b"s"), CHAIN, term)
        pointer = await snapshots.pointer()
        await handle.session.write(Put(LAYOUT.chunk(pointer.name, 0), b"x"))
        with pytest.raises(MetadataCorrupt, match="damaged"):
            await snapshots.load(pointer)

    in_world(work)


@pytest.mark.parametrize("seed", range(10))
def test_entries_are_deleted_although_requests_fail(seed: int) -> None:
    async def work(world: World) -> None:
        handle = await world.handle()
        term, snapshots = await handle.take_term(), Snapshots(handle.session, LAYOUT)
        for index in range(250):
            await handle.append(index)
        world.ensemble.faults = Faults(loss_percent=2, expiry_percent=1)
        while True:
            try:
                await snapshots.write(Snapshot(250, b"s"), CHAIN, term)
                break
            except Disconnected:
                continue
        world.ensemble.faults = Faults()
        names = await handle.session.children(LAYOUT.log)
        assert sorted(names or ()) == [f"{index:016d}" for index in range(150, 250)]

    in_world(work, seed=seed)
