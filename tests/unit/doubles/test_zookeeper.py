"""Faults of the simulated ensemble; `tests/contract` compares the rest with a real one."""

from __future__ import annotations

import asyncio

import pytest

from doubles.zookeeper import Faults
from lakelog.metadata.store.zookeeper.session import Create, Disconnected, OutcomeUnknown, Put
from zookeeper_kit import World, in_world


def test_a_lost_connection_ends_its_watches_and_is_reported() -> None:
    async def work(world: World) -> None:
        session, reported, watched = world.ensemble.session(), [0], [0]

        def count(counter: list[int]) -> None:
            counter[0] += 1

        await session.open(lambda: count(reported))
        await session.write(Create("/x"))
        await session.get("/x", lambda: count(watched))
        session.lose_connection()
        await session.write(Put("/x", b"1"))
        assert (reported, watched) == ([3], [0])
        await session.get("/x", lambda: count(watched))
        await session.write(Put("/x", b"2"), Put("/x", b"3"))
        assert watched == [1]

    in_world(work)


def test_an_expired_session_takes_its_ephemeral_nodes_with_it() -> None:
    async def work(world: World) -> None:
        session, other = world.ensemble.session(), world.ensemble.session()
        await session.open(lambda: None)
        await other.open(lambda: None)
        await session.write(Create("/x", ephemeral=True))
        old = session.session_id
        session.expire()
        assert session.session_id != old
        await other.write(Create("/barrier"))
        assert await other.get("/x") is None

    in_world(work)


def test_a_write_of_unknown_outcome_is_done_now_later_or_never() -> None:
    async def fates(world: World) -> str:
        session = world.ensemble.session()
        await session.open(lambda: None)
        await session.write(Create("/x"))
        world.ensemble.faults = Faults(loss_percent=100)
        before = world.ensemble.committed
        with pytest.raises(OutcomeUnknown):
            await session.write(Put("/x", b"1"))
        with pytest.raises(Disconnected):
            await session.get("/x")
        at_once = world.ensemble.committed > before
        await asyncio.sleep(1)
        return "now" if at_once else "later" if world.ensemble.committed > before else "never"

    assert {in_world(fates, seed=seed) for seed in range(40)} == {"now", "later", "never"}
