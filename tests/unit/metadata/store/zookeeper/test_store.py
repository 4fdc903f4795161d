"""The whole store: connections that end, watches, and a log that no longer continues."""

from __future__ import annotations

import asyncio

import pytest

from doubles.zookeeper import Faults
from lakelog.metadata.errors import BrokerIdInUse, MetadataCorrupt, MetadataUnavailable
from lakelog.metadata.store.api import Change, EntryOutcome, MetadataBatch
from lakelog.metadata.store.zookeeper.session import Create, Delete
from lakelog.metadata.store.zookeeper.store import ZooKeeperStore
from zookeeper_kit import LAYOUT, OTHER, SESSION_TIMEOUT_S, WRITER, World, in_world


async def _append(store: ZooKeeperStore, serial: int, end: int, writer: bytes) -> bool:
    """Append as the contract says; return whether the batch is in the log."""
    batch = MetadataBatch(writer, serial, (await store.controller()).epoch, b"%d" % serial)
    while True:
        try:
            outcome = (await store.append(batch, end)).outcome
            if outcome is not EntryOutcome.UNKNOWN:
                return await store.position_of(writer, serial) is not None
        except MetadataUnavailable:
            continue


@pytest.mark.histories
@pytest.mark.parametrize("first", range(5))
def test_every_batch_is_in_the_log_once_or_its_writer_knows_it_lost(
    first: int, is_long: bool
) -> None:
    for seed in range(first, 60 if is_long else 10, 5):
        _write_from_two_brokers(seed)


def _write_from_two_brokers(seed: int) -> None:
    async def work(world: World) -> None:
        faults = Faults(loss_percent=4, expiry_percent=2, lag_iterations_max=40)
        stores = [world.store(), world.store()]
        for number, store in enumerate(stores, 1):
            await store.open(create=True)
            await store.register_broker(number, b"%d" % number * 16)
        await stores[0].elect()
        world.ensemble.faults = faults
        written = await asyncio.gather(_write(stores[0], WRITER), _write(stores[1], OTHER))
        world.ensemble.faults = Faults()
        for store in stores:
            await store.live_brokers()  # registers again if it has to
        for store in stores:
            assert set(await store.live_brokers()) == {1, 2}
            assert len((await store.read(0)).entries) == sum(map(len, written))
        for store in stores:
            await store.close()

    async def _write(store: ZooKeeperStore, writer: bytes) -> list[int]:
        done = []
        for serial in range(1, 16):
            try:
                end = len((await store.read(0)).entries)
            except MetadataUnavailable:
                continue
            if await _append(store, serial, end, writer):
                done.append(serial)
        return done

    in_world(work, seed=seed)


def test_changes_during_a_lost_session_are_reported_after_it() -> None:
    async def work(world: World) -> None:
        session = world.ensemble.session()
        store, other = world.store(session), world.store()
        await store.open(create=True)
        await store.register_broker(1, b"1" * 16)
        await other.open(create=True)
        await store.elect()
        changes, changed = [Change(0)], asyncio.Event()

        def note(change: Change) -> None:
            changes[0] |= change
            changed.set()

        await asyncio.sleep(5)
        store.watch(note)
        session.expire()
        await other.register_broker(2, b"2" * 16)
        assert await _append(other, 1, 0, OTHER)
        while Change.ENTRIES | Change.BROKERS not in changes[0]:
            await changed.wait()
            changed.clear()
        assert len((await store.read(0)).entries) == 1
        assert await store.live_brokers() == {1: b"1" * 16, 2: b"2" * 16}

    in_world(work)


def test_a_change_is_reported_again_after_a_watcher_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(world: World) -> None:
        store, other = world.store(), world.store()
        await store.open(create=True)
        await other.open(create=True)
        left, changes, changed = [2], [Change(0)], asyncio.Event()

        def note(change: Change) -> None:
            left[0] -= 1
            if left[0] >= 0:
                raise ValueError("planted")
            changes[0] |= change
            changed.set()

        await asyncio.sleep(5)
        store.watch(note)
        await other.register_broker(2, b"2" * 16)
        while Change.BROKERS not in changes[0]:
            await changed.wait()
            changed.clear()

    in_world(work)
    assert caplog.text.count("watching the ensemble failed") == 1


def test_own_appends_are_not_reported() -> None:
    async def work(world: World) -> None:
        store = world.store()
        await store.open(create=True)
        await store.register_broker(1, b"1" * 16)
        await store.elect()
        await asyncio.sleep(5)
        reported: list[Change] = []
        store.watch(reported.append)
        for end in range(5):
            assert await _append(store, end + 1, end, WRITER)
            await asyncio.sleep(1)
        assert not any(Change.ENTRIES in change for change in reported)

    in_world(work)


def test_a_store_whose_ensemble_was_restored_refuses_every_call() -> None:
    async def work(world: World) -> None:
        session = world.ensemble.session()
        store = world.store(session)
        await store.open(create=True)
        await store.register_broker(1, b"1" * 16)
        await store.elect()
        backup = world.ensemble.committed
        assert await _append(store, 1, 0, WRITER)
        world.ensemble.restore(backup)
        session.lose_connection()
        for _ in range(2):
            with pytest.raises(MetadataCorrupt, match="ends at entry 0, but entry 1"):
                await store.read(0)
        with pytest.raises(MetadataCorrupt):
            await store.elect()

    in_world(work)


def test_a_store_whose_broker_id_was_taken_refuses_every_call() -> None:
    async def work(world: World) -> None:
        session, rival = world.ensemble.session(), world.ensemble.session()
        store = world.store(session)
        await store.open(create=True)
        await store.register_broker(1, b"1" * 16)
        await rival.open(lambda: None)
        path = LAYOUT.broker(1)
        await rival.write(Delete(path), Create(path, b"2" * 16, ephemeral=True))
        session.expire()
        for _ in range(2):
            with pytest.raises(BrokerIdInUse, match="has taken this broker's id"):
                await store.live_brokers()

    in_world(work)


def test_calls_fail_while_no_server_answers() -> None:
    async def work(world: World) -> None:
        store = world.store()
        await store.open(create=True)
        world.ensemble.faults = Faults(loss_percent=100)
        with pytest.raises(MetadataUnavailable):
            await store.controller()
        world.ensemble.faults = Faults()
        assert (await store.controller()).epoch == 0
        await store.close()
        with pytest.raises(MetadataUnavailable, match="closed"):
            await store.controller()

    in_world(work)


def test_only_an_acknowledged_heartbeat_counts_from_when_it_was_sent() -> None:
    async def work(world: World) -> None:
        store = world.store()
        await store.open(create=True)
        await store.register_broker(1, b"1" * 16)
        for _ in range(3):
            await asyncio.sleep(SESSION_TIMEOUT_S / 2)
            assert 0 <= world.loop.time() - store.heartbeat_s < SESSION_TIMEOUT_S / 3
        world.ensemble.faults = Faults(loss_percent=100)
        await asyncio.sleep(SESSION_TIMEOUT_S / 2)
        last = store.heartbeat_s
        await asyncio.sleep(SESSION_TIMEOUT_S / 2)
        assert store.heartbeat_s == last
        world.ensemble.faults = Faults()
        await asyncio.sleep(SESSION_TIMEOUT_S)
        assert store.heartbeat_s > last
        await store.close()

    in_world(work)
