"""Which brokers are alive: heartbeats before sessions."""

from __future__ import annotations

import asyncio

import pytest

from doubles.zookeeper import SimulatedSession
from lakelog.metadata.errors import BrokerIdInUse
from lakelog.metadata.store.zookeeper.brokers import Brokers
from zookeeper_kit import LAYOUT, World, in_world

TIMEOUT_S = 10.0


async def _brokers(world: World) -> tuple[Brokers, SimulatedSession]:
    handle = await world.handle()
    return Brokers(handle.session, LAYOUT, world.clock.monotonic, TIMEOUT_S), handle.session


def test_a_broker_whose_loop_hangs_is_dead_although_its_session_lives() -> None:
    async def work(world: World) -> None:
        hung, _ = await _brokers(world)
        well, _ = await _brokers(world)
        reader, _ = await _brokers(world)
        await hung.register(1, b"1" * 16)
        await well.register(2, b"2" * 16)
        for _ in range(6):
            await asyncio.sleep(TIMEOUT_S / 5)
            assert await well.beat()
            live = await reader.live()
        assert live == {2: b"2" * 16}
        assert await hung.beat()
        await asyncio.sleep(1)
        assert await reader.live() == {1: b"1" * 16, 2: b"2" * 16}

    in_world(work)


def test_a_hung_broker_has_no_recent_heartbeat_long_before_it_is_dead() -> None:
    async def work(world: World) -> None:
        hung, _ = await _brokers(world)
        well, _ = await _brokers(world)
        reader, _ = await _brokers(world)
        await hung.register(1, b"1" * 16)
        await well.register(2, b"2" * 16)
        assert set(await reader.beating(0.3 * TIMEOUT_S)) == {1, 2}
        for _ in range(2):
            await asyncio.sleep(TIMEOUT_S / 5)
            assert await well.beat()
        assert set(await reader.beating(0.3 * TIMEOUT_S)) == {2}
        assert set(await reader.live()) == {1, 2}

    in_world(work)


def test_a_reader_that_was_paused_gives_every_broker_a_full_timeout() -> None:
    async def work(world: World) -> None:
        broker, _ = await _brokers(world)
        reader, _ = await _brokers(world)
        await broker.register(1, b"1" * 16)
        await reader.live()
        await asyncio.sleep(TIMEOUT_S * 3)
        assert await reader.live() == {1: b"1" * 16}

    in_world(work)


def test_a_broker_restarted_after_a_kill_waits_for_its_old_session() -> None:
    async def work(world: World) -> None:
        killed, session = await _brokers(world)
        await killed.register(1, b"1" * 16)
        restarted, _ = await _brokers(world)
        registering = asyncio.ensure_future(restarted.register(1, b"2" * 16))
        await asyncio.sleep(TIMEOUT_S / 2)
        assert not registering.done()
        await session.close()
        await registering
        assert await restarted.live() == {1: b"2" * 16}

    in_world(work)


def test_a_live_broker_keeps_its_id() -> None:
    async def work(world: World) -> None:
        first, _ = await _brokers(world)
        await first.register(1, b"1" * 16)
        second, _ = await _brokers(world)
        registering = asyncio.ensure_future(second.register(1, b"2" * 16))
        await asyncio.sleep(1)
        assert await first.beat()
        with pytest.raises(BrokerIdInUse, match="another process runs broker id 1"):
            await registering
        assert world.loop.time() < TIMEOUT_S

    in_world(work)


def test_a_hung_broker_keeps_its_id_while_its_session_lives() -> None:
    async def work(world: World) -> None:
        first, _ = await _brokers(world)
        await first.register(1, b"1" * 16)
        second, _ = await _brokers(world)
        with pytest.raises(BrokerIdInUse, match=r"sends no heartbeat.* 2 tickTime"):
            await second.register(1, b"2" * 16)

    in_world(work)


def test_an_ended_process_leaves_the_live_brokers_before_its_session_ends() -> None:
    async def work(world: World) -> None:
        ended, _ = await _brokers(world)
        await ended.register(1, b"1" * 16)
        reader, _ = await _brokers(world)
        assert await reader.live() == {1: b"1" * 16}
        await reader.end(1, b"1" * 16)
        assert await reader.live() == {}
        await reader.end(1, b"1" * 16)
        restarted, _ = await _brokers(world)
        await restarted.register(1, b"2" * 16)
        await reader.end(1, b"1" * 16)
        assert await reader.live() == {1: b"2" * 16}, "another process has the id"

    in_world(work)


def test_a_process_that_was_ended_by_mistake_registers_again() -> None:
    async def work(world: World) -> None:
        broker, _ = await _brokers(world)
        await broker.register(1, b"1" * 16)
        reader, _ = await _brokers(world)
        await reader.end(1, b"1" * 16)
        assert not await broker.beat()
        await broker.restore()
        await asyncio.sleep(1)
        assert await reader.live() == {1: b"1" * 16}

    in_world(work)


def test_a_lost_session_is_replaced_unless_the_id_was_taken() -> None:
    async def work(world: World) -> None:
        broker, session = await _brokers(world)
        await broker.register(1, b"1" * 16)
        session.expire()
        assert not await broker.beat()
        await broker.restore()
        assert await broker.live() == {1: b"1" * 16}
        session.expire()
        other, _ = await _brokers(world)
        await other.register(1, b"2" * 16)
        with pytest.raises(BrokerIdInUse, match="has taken this broker's id"):
            await broker.restore()

    in_world(work)


def test_a_broker_that_registered_again_between_two_looks_lives() -> None:
    async def work(world: World) -> None:
        broker, session = await _brokers(world)
        reader, _ = await _brokers(world)
        await broker.register(1, b"1" * 16)
        for _ in range(20):
            assert await broker.beat()
        await reader.live()
        session.expire()
        await broker.restore()
        for _ in range(10):
            await asyncio.sleep(TIMEOUT_S / 5)
            assert await broker.beat()
            assert await reader.live() == {1: b"1" * 16}

    in_world(work)
