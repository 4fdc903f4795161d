"""Barriers and repeated requests against servers that lag behind."""

from __future__ import annotations

import pytest

from doubles.zookeeper import Faults
from lakelog.metadata.errors import MetadataCorrupt
from lakelog.metadata.store.zookeeper.session import (
    Create,
    Disconnected,
    Put,
    get_all,
    get_required,
    pass_barrier,
    write_repeatable,
)
from zookeeper_kit import World, in_world


def test_a_barrier_shows_all_earlier_writes() -> None:
    async def work(world: World) -> bool:
        writer, reader = world.ensemble.session(), world.ensemble.session()
        await writer.open(lambda: None)
        await reader.open(lambda: None)
        await writer.write(Create("/b"), Create("/x", b"0"))
        stale = False
        for number in range(30):
            data = b"%d" % number
            await writer.write(Put("/x", data))
            node = await reader.get("/x")
            stale |= node is None or node.data != data
            await pass_barrier(reader, "/b")
            assert (await get_required(reader, "/x")).data == data
        return stale

    assert in_world(work, faults=Faults(lag_iterations_max=100)), "the servers did not lag"


def test_a_missing_node_of_the_log_is_reported() -> None:
    async def work(world: World) -> None:
        session = world.ensemble.session()
        await session.open(lambda: None)
        with pytest.raises(MetadataCorrupt, match="/b is missing"):
            await pass_barrier(session, "/b")
        with pytest.raises(MetadataCorrupt, match="/x is missing"):
            await get_required(session, "/x")

    in_world(work)


def test_many_nodes_are_read_in_order() -> None:
    async def work(world: World) -> None:
        session = world.ensemble.session()
        await session.open(lambda: None)
        for number in range(0, 100, 2):
            await session.write(Create(f"/{number}", b"%d" % number))
        nodes = await get_all(session, (f"/{number}" for number in range(100)))
        expected = [None if number % 2 else b"%d" % number for number in range(100)]
        assert [node and node.data for node in nodes] == expected

    in_world(work)


def test_a_write_of_unknown_outcome_asks_to_be_repeated() -> None:
    async def work(world: World) -> None:
        session = world.ensemble.session()
        await session.open(lambda: None)
        with pytest.raises(Disconnected):
            await write_repeatable(session, Create("/x"))

    in_world(work, faults=Faults(loss_percent=100))
