"""An ensemble that forgot, changed or replaced entries, and appends of unknown outcome.

Terms rise, one for each election, whatever becomes of the requests.
"""

from __future__ import annotations

from typing import Any

import pytest

from doubles.zookeeper import Faults
from lakelog.metadata.errors import MetadataCorrupt, MetadataMissing, MetadataUnavailable
from lakelog.metadata.store.api import EntryOutcome, MetadataBatch, Snapshot
from lakelog.metadata.store.chain import MemoryMarks
from lakelog.metadata.store.zookeeper.layout import StoredEntry
from lakelog.metadata.store.zookeeper.session import Disconnected, Node, Notify, Put
from zookeeper_kit import LAYOUT, OTHER, WRITER, Handle, World, in_world


async def _with_entries(world: World, count: int) -> Handle:
    handle = await world.handle()
    await handle.take_term()
    for index in range(count):
        assert (await handle.append(index)).outcome is EntryOutcome.DONE
    return handle


def test_an_ensemble_that_lost_entries_is_refused_while_running_and_at_a_start() -> None:
    async def work(world: World) -> None:
        handle = await _with_entries(world, 3)
        backup = world.ensemble.committed
        await handle.append(3)
        world.ensemble.restore(backup)
        with pytest.raises(MetadataCorrupt, match="ends at entry 3, but entry 4 was seen"):
            await handle.log.verify()
        with pytest.raises(MetadataCorrupt, match="restored from a backup"):
            await world.handle(handle.marks)

    in_world(work)


def test_another_history_of_the_same_length_is_refused() -> None:
    async def work(world: World) -> None:
        handle = await _with_entries(world, 3)
        backup = world.ensemble.committed
        await handle.append(3)
        world.ensemble.restore(backup)
        rival = await world.handle()
        await rival.terms.current()
        await rival.append(3, b"another", OTHER)
        with pytest.raises(MetadataCorrupt, match=r"another history .* up to entry 4"):
            await handle.log.verify()
        await rival.append(4, b"more", OTHER)
        with pytest.raises(MetadataCorrupt, match=r"another history .* up to entry 4"):
            await world.handle(handle.marks)
        with pytest.raises(MetadataCorrupt, match=r"another history .* up to entry 4"):
            await handle.log.read(4)

    in_world(work)


def test_a_wiped_ensemble_is_refused_though_a_log_may_be_created() -> None:
    async def work(world: World) -> None:
        handle = await _with_entries(world, 3)
        world.ensemble.restore(0)
        with pytest.raises(MetadataCorrupt, match="data folder belongs to a log"):
            await world.handle(handle.marks)
        fresh = Handle(world.ensemble.session())
        await fresh.open(b"j" * 16)
        with pytest.raises(MetadataCorrupt, match="another log"):
            await world.handle(handle.marks)

    in_world(work)


def test_a_broker_knows_a_log_that_it_has_only_opened() -> None:
    """An empty one has no entry that the mark could name."""

    async def work(world: World) -> None:
        handle = await world.handle()
        world.ensemble.restore(0)
        with pytest.raises(MetadataCorrupt, match="data folder belongs to a log"):
            await world.handle(handle.marks)

    in_world(work)


def test_a_log_is_created_on_request_only() -> None:
    async def work(world: World) -> None:
        handle = Handle(world.ensemble.session())
        await handle.session.open(lambda: None)
        with pytest.raises(MetadataMissing, match="/lakelog/format"):
            await handle.log.open(create=False, log_id=b"i" * 16)

    in_world(work)


def test_a_changed_entry_is_refused() -> None:
    async def work(world: World) -> None:
        handle = await _with_entries(world, 3)
        path = LAYOUT.entry(1)
        node = await handle.session.get(path)
        assert node is not None
        entry = StoredEntry.decode(path, node.data)
        await handle.session.write(Put(path, entry._replace(payload=b"y").encode()))
        reader = await world.handle()
        with pytest.raises(MetadataCorrupt, match="in ZooKeeper: entry 1 is damaged"):
            await reader.log.read(0)

    in_world(work)


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_of_unknown_outcome_is_found_once_written(seed: int) -> None:
    async def work(world: World) -> None:
        handle = await _with_entries(world, 2)
        world.ensemble.faults = Faults(loss_percent=100)
        assert (await handle.append(2, b"mine")).outcome is EntryOutcome.UNKNOWN
        world.ensemble.faults = Faults()
        outcome = (await handle.append(2, b"mine")).outcome
        assert outcome in (EntryOutcome.DONE, EntryOutcome.LOST)
        assert await handle.log.position_of(WRITER, 3) == 2
        payloads = [entry.payload for entry in (await handle.log.read(0)).entries]
        assert payloads == [b"x", b"x", b"mine"]

    in_world(work, seed=seed)


def test_the_outcome_of_a_trimmed_entry_stays_unknown() -> None:
    async def work(world: World) -> None:
        handle = await _with_entries(world, 2)
        world.ensemble.faults = Faults(loss_percent=100)
        assert (await handle.append(2)).outcome is EntryOutcome.UNKNOWN
        world.ensemble.faults = Faults()
        other = await world.handle()
        await other.take_term(2)
        start = len((await other.log.read(0)).entries)
        for index in range(start, 150):
            await other.append(index, writer=OTHER)
        await other.log.write_snapshot(Snapshot(150, b"s"))
        with pytest.raises(MetadataUnavailable, match="entry 2 was trimmed"):
            await handle.log.position_of(WRITER, 3)

    in_world(work)


def test_a_reader_far_behind_gets_the_snapshot() -> None:
    async def work(world: World) -> None:
        handle = await _with_entries(world, 2)
        reader = await world.handle()
        assert len((await reader.log.read(0)).entries) == 2
        for index in range(2, 150):
            await handle.append(index)
        await handle.log.write_snapshot(Snapshot(140, b"s"))
        read = await reader.log.read(2)
        assert read.snapshot == Snapshot(140, b"s")
        assert [entry.index for entry in read.entries] == list(range(140, 150))
        mark = reader.marks.read()
        assert mark is not None
        assert mark.end == 150

    in_world(work)


def test_the_entries_are_never_listed() -> None:
    """Their names alone may exceed the size of a response."""

    async def work(world: World) -> None:
        handle = await world.handle()
        list_children, listed = handle.session.children, []

        async def children(path: str, on_change: Notify | None = None) -> list[str] | None:
            listed.append(path)
            return await list_children(path, on_change)

        handle.session.children = children  # type: ignore[method-assign]
        await handle.take_term()
        for index in range(5):
            await handle.append(index)
        await handle.log.write_snapshot(Snapshot(4, b"s"))
        await handle.log.read(0)
        handle.session.expire()
        await handle.log.verify()
        assert LAYOUT.snapshots in listed
        assert LAYOUT.log not in listed

    in_world(work)


def test_a_stale_server_is_not_taken_for_lost_writes() -> None:
    async def work(world: World) -> None:
        marks = MemoryMarks()
        handle = await world.handle(marks)
        await handle.take_term()
        for index in range(10):
            await handle.append(index)
            handle.session.expire()
            await handle.log.verify()

    in_world(work, faults=Faults(lag_iterations_max=200))


def test_a_reader_gets_entries_that_are_newer_than_the_end_that_it_knows() -> None:
    async def work(world: World) -> None:
        handle = await _with_entries(world, 3)
        rival = await world.handle()
        await rival.take_term()
        await rival.append(3)
        read = await handle.log.read(2)
        assert [entry.index for entry in read.entries] == [2, 3]

    in_world(work)


@pytest.mark.parametrize("seed", range(10))
def test_a_new_session_at_a_stale_server_misses_no_entry(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ends after the end of the log was read, and before the entries are."""

    async def work(world: World) -> None:
        handle = await _with_entries(world, 3)
        get = handle.session.get
        newest = [LAYOUT.entry(2)]

        async def from_a_new_session(path: str, *rest: Any) -> Node | None:
            if path in newest:
                newest.remove(path)
                handle.session.expire()
            return await get(path, *rest)

        monkeypatch.setattr(handle.session, "get", from_a_new_session)
        assert await handle.log.position_of(WRITER, 3) == 2
        assert not newest

    in_world(work, faults=Faults(lag_iterations_max=200), seed=seed)


def test_a_deposed_writer_is_fenced_before_its_successor_has_written() -> None:
    async def work(world: World) -> None:
        handle = await _with_entries(world, 1)
        batch = MetadataBatch(WRITER, 2, handle.terms.newest.epoch, b"x")
        successor = await world.handle()
        await successor.take_term(2)
        await handle.terms.current()
        assert (await handle.log.append(batch, 1)).outcome is EntryOutcome.FENCED

    in_world(work)


def test_a_writer_of_the_present_term_that_is_behind_has_lost_its_place() -> None:
    async def work(world: World) -> None:
        handle = await _with_entries(world, 2)
        batch = MetadataBatch(WRITER, 9, handle.terms.newest.epoch, b"x")
        outcome = await handle.log.append(batch, 1)
        assert (outcome.outcome, outcome.end) == (EntryOutcome.LOST, 2)

    in_world(work)


def test_a_forgotten_term_is_refused() -> None:
    """The entries are complete, so that only the term shows that writes are lost."""

    async def work(world: World) -> None:
        handle = await _with_entries(world, 2)
        backup = world.ensemble.committed
        await handle.take_term()
        world.ensemble.restore(backup)
        with pytest.raises(MetadataCorrupt, match="is at epoch 1, but epoch 2 was seen"):
            await handle.log.verify()

    in_world(work)


def test_two_brokers_never_get_the_same_term() -> None:
    async def work(world: World) -> None:
        first, second = await world.handle(), await world.handle()
        before = await first.terms.current()
        one = await first.terms.take(1, b"1" * 16, before)
        other = await second.terms.take(2, b"2" * 16, before)
        assert (one.broker_id, one.epoch) == (1, 1)
        assert other == one, "the loser learns the winner's term"

    in_world(work)


@pytest.mark.parametrize("seed", range(20))
def test_an_election_of_unknown_outcome_counts_once(seed: int) -> None:
    async def work(world: World) -> None:
        handle = await world.handle()
        world.ensemble.faults = Faults(loss_percent=30, expiry_percent=10)
        for epoch in range(1, 6):
            while True:
                try:
                    current = await handle.terms.current()
                    term = await handle.terms.take(1, b"1" * 16, current)
                    break
                except Disconnected:
                    continue
            assert term.epoch == epoch

    in_world(work, seed=seed)


def test_a_forgotten_term_is_detected() -> None:
    async def work(world: World) -> None:
        handle = await world.handle()
        backup = world.ensemble.committed
        await handle.take_term()
        world.ensemble.restore(backup)
        with pytest.raises(MetadataCorrupt, match="is at epoch 0, but epoch 1"):
            await handle.terms.current()

    in_world(work)
