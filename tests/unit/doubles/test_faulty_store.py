"""Failures of a metadata store that stands for a remote one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from doubles.faulty_store import FaultyStore
from doubles.randomness import SeededRandom
from lakelog.metadata.errors import MetadataUnavailable
from lakelog.metadata.store.api import Change, EntryOutcome, MetadataBatch
from memory_metadata import MemoryMetadata

WRITER = b"writer-aaaaaaaaa"
OTHER = b"writer-bbbbbbbbb"


class WatchedMetadata(MemoryMetadata):
    """Reports changes when the test says so."""

    def watch(self, callback: Callable[[Change], None]) -> None:
        self.report = callback


def batch(serial: int, writer: bytes = WRITER) -> MetadataBatch:
    return MetadataBatch(writer, serial, 0, b"payload %d" % serial)


async def opened(
    seed: int, *, inner: MemoryMetadata | None = None, unknown: int = 0, unavailable: int = 0
) -> FaultyStore:
    store = FaultyStore(
        inner or MemoryMetadata(),
        SeededRandom(seed),
        unknown_percent=unknown,
        unavailable_percent=unavailable,
    )
    await store.open(create=True)
    return store


def test_an_unknown_append_is_dropped_or_done_now_or_done_later() -> None:
    async def fate(seed: int) -> str:
        inner = MemoryMetadata()
        store = await opened(seed, inner=inner, unknown=100)
        outcome = await store.append(batch(1), 0)
        assert outcome.outcome is EntryOutcome.UNKNOWN
        at_once = await inner.position_of(WRITER, 1)
        await store.lose_session()  # waits for late appends
        at_last = await inner.position_of(WRITER, 1)
        if at_last is None:
            return "dropped"
        return "later" if at_once is None else "now"

    fates = [asyncio.run(fate(seed)) for seed in range(60)]
    assert min(fates.count(name) for name in ("dropped", "now", "later")) > 5


def test_a_late_append_does_not_overwrite_another_writers() -> None:
    async def main(seed: int) -> None:
        inner = MemoryMetadata()
        store = await opened(seed, inner=inner, unknown=100)
        await store.append(batch(1), 0)
        taken = await inner.append(batch(1, OTHER), 0)
        await store.lose_session()
        entries = (await inner.read(0)).entries
        assert [entry.index for entry in entries] == [0]
        assert (await inner.position_of(OTHER, 1) == 0) is (taken.outcome is EntryOutcome.DONE)

    for seed in range(30):
        asyncio.run(main(seed))


def test_without_failures_results_are_of_the_inner_store() -> None:
    async def main() -> None:
        store = await opened(1)
        assert (await store.append(batch(1), 0)).outcome is EntryOutcome.DONE
        assert (await store.append(batch(2), 0)).outcome is EntryOutcome.LOST
        assert await store.position_of(WRITER, 1) == 0
        (entry,) = (await store.read(0)).entries
        assert entry.payload == b"payload 1"

    asyncio.run(main())


def test_an_unavailable_store_changes_nothing() -> None:
    async def main() -> None:
        inner = MemoryMetadata()
        store = await opened(1, inner=inner, unavailable=100)
        with pytest.raises(MetadataUnavailable, match="injected"):
            await store.append(batch(1), 0)
        with pytest.raises(MetadataUnavailable, match="injected"):
            await store.register_broker(1, b"i" * 16)
        assert (await inner.read(0)).entries == ()
        assert await inner.live_brokers() == {}

    asyncio.run(main())


def test_a_lost_session_fails_every_call_until_it_is_restored() -> None:
    async def main() -> None:
        inner = MemoryMetadata()
        store = await opened(1, inner=inner)
        await store.register_broker(1, b"i" * 16)
        await store.lose_session()
        for call in (store.live_brokers, store.controller, store.elect):
            with pytest.raises(MetadataUnavailable, match="session is lost"):
                await call()
        inner._brokers.clear()  # the inner store has seen this broker die
        await store.restore_session()
        assert await store.live_brokers() == {1: b"i" * 16}

    asyncio.run(main())


def test_watchers_are_called_late_and_sometimes_with_all_changes() -> None:
    async def main() -> None:
        inner = WatchedMetadata()
        store = await opened(1, inner=inner)
        reported: list[Change] = []
        store.watch(reported.append)
        for _ in range(100):
            inner.report(Change.ENTRIES)
        assert reported == []
        await store.lose_session()  # waits for the reports
        assert len(reported) == 100
        assert all(Change.ENTRIES in change for change in reported)
        assert 0 < reported.count(~Change(0)) < 50

    asyncio.run(main())
