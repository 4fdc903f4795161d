"""What every metadata store promises, whichever it is (`lakelog.metadata.store.api`)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import zookeeper_ensemble
from doubles.disk import MemoryDisk
from doubles.faulty_store import FaultyStore
from doubles.randomness import SeededRandom
from doubles.sqlite_metadata import SimulatedMetadata
from doubles.zookeeper import Faults, SimulatedEnsemble
from lakelog.cli.local_cluster.ensemble import SESSION_TIMEOUT_S
from lakelog.metadata.errors import BrokerIdInUse, MetadataMissing, MetadataUnavailable
from lakelog.metadata.store.api import (
    BATCH_BYTES_MAX,
    Change,
    ControllerTerm,
    EntryOutcome,
    LogRead,
    MetadataBatch,
    MetadataStore,
    Snapshot,
)
from lakelog.metadata.store.chain import MemoryMarks
from lakelog.metadata.store.embedded import METADATA_FILE, EmbeddedStore
from lakelog.metadata.store.zookeeper.kazoo_session import KazooSession
from lakelog.metadata.store.zookeeper.store import ZooKeeperStore
from lakelog.runtime.posix import SystemClock, SystemRandom
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from simulator.engine.tasks import SimulatedTasks
from waiting import until

WRITER = b"writer-aaaaaaaaa"
OTHER = b"writer-bbbbbbbbb"


@dataclass(frozen=True)
class Variant:
    """`handle` makes one more store over the same log; `first` and `second` may be the same.

    A store that is simulated runs in virtual time: on a busy machine the iterations of the loop in
    which it answers would take longer than its sessions last.
    """

    name: str
    handle: Callable[[Path], MetadataStore]
    two_handles: bool
    is_virtual: bool = False


def _embedded(path: Path) -> MetadataStore:
    return EmbeddedStore(path / METADATA_FILE, SystemClock())


def _shared(path: Path) -> MetadataStore:
    return EmbeddedStore(path / METADATA_FILE, SystemClock(), shared=True)


def _faulty(path: Path) -> MetadataStore:
    return FaultyStore(_shared(path), SeededRandom(7))


def _virtual_clock() -> SimulatedClock:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return SimulatedClock(loop)


_SIMULATED: dict[Path, SimulatedMetadata] = {}


def _simulated(path: Path) -> MetadataStore:
    if path not in _SIMULATED:
        disk = MemoryDisk(_virtual_clock())
        disk.make_dirs(path)
        _SIMULATED[path] = SimulatedMetadata(disk, path / METADATA_FILE)
    tasks = SimulatedTasks(asyncio.get_running_loop(), random.Random(7))
    tasks.delay_s_max = 0.0
    return _SIMULATED[path].handle(tasks, lambda: True)


_ENSEMBLES: dict[Path, SimulatedEnsemble] = {}


def _ensemble(path: Path, faults: Faults) -> MetadataStore:
    ensemble = _ENSEMBLES.setdefault(path, SimulatedEnsemble(SeededRandom(7), faults))
    return ZooKeeperStore(
        ensemble.session(),
        "/kafka/lakelog",
        MemoryMarks(),
        _virtual_clock(),
        SeededRandom(8),
        session_timeout_s=1.0,
    )


def _zookeeper(path: Path) -> MetadataStore:
    return _ensemble(path, Faults())


def _faulty_zookeeper(path: Path) -> MetadataStore:
    return _ensemble(path, Faults(loss_percent=3, expiry_percent=1))


def _real_zookeeper(path: Path, version: str = zookeeper_ensemble.NEWEST) -> MetadataStore:
    servers = zookeeper_ensemble.shared(version).servers
    return ZooKeeperStore(
        KazooSession(servers, SESSION_TIMEOUT_S),
        f"/contract/{path.name}",
        MemoryMarks(),
        SystemClock(),
        SystemRandom(),
        session_timeout_s=SESSION_TIMEOUT_S,
    )


def _oldest_zookeeper(path: Path) -> MetadataStore:
    return _real_zookeeper(path, zookeeper_ensemble.OLDEST)


VARIANTS = [
    Variant("simulated", _simulated, True, is_virtual=True),
    Variant("embedded", _embedded, False),
    Variant("embedded-two-handles", _shared, True),
    Variant("faulty", _faulty, True),
    Variant("zookeeper-simulated", _zookeeper, True, is_virtual=True),
    Variant("zookeeper-simulated-faulty", _faulty_zookeeper, True, is_virtual=True),
    Variant("zookeeper", _real_zookeeper, True),
    Variant("zookeeper-3.8", _oldest_zookeeper, True),
]
EACH_VARIANT = [
    pytest.param(
        variant,
        id=variant.name,
        # The processes of a run with several have an ensemble each; one is enough.
        marks=[pytest.mark.xdist_group("zookeeper"), pytest.mark.java]
        if variant.name in ("zookeeper", "zookeeper-3.8")
        else [],
    )
    for variant in VARIANTS
]


class Cluster:
    """Stores over one log; broker 1 is the first's, broker 2 the second's."""

    def __init__(self, variant: Variant, path: Path) -> None:
        self._variant = variant
        self._path = path
        self._opened: list[MetadataStore] = []
        self.epoch = 0

    async def handle(self, *, create: bool = False) -> MetadataStore:
        store = self._variant.handle(self._path)
        await store.open(create=create)
        self._opened.append(store)
        return store

    async def start(self) -> None:
        self.first = await self.handle(create=True)
        await self.first.register_broker(1, b"1" * 16)
        self.epoch = (await self.first.elect()).epoch
        self.second = await self.handle() if self._variant.two_handles else self.first

    async def stop(self) -> None:
        for store in self._opened:
            await store.close()

    async def append(
        self,
        serial: int,
        end: int,
        *,
        writer: bytes = WRITER,
        payload: bytes = b"x",
        store: MetadataStore | None = None,
        epoch: int | None = None,
    ) -> EntryOutcome:
        """As the API says to: the very same append until its outcome is known."""
        chosen = self.first if store is None else store
        batch = MetadataBatch(writer, serial, self.epoch if epoch is None else epoch, payload)
        while (answer := await chosen.append(batch, end)).outcome is EntryOutcome.UNKNOWN:
            pass
        mine = await chosen.position_of(writer, serial)
        return answer.outcome if mine is None else EntryOutcome.DONE


Scenario = Callable[[Cluster], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]


@pytest.fixture(params=EACH_VARIANT)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    def play(scenario: Scenario) -> None:
        async def whole() -> None:
            async with _started(request.param, tmp_path) as cluster:
                await asyncio.wait_for(scenario(cluster), 120)

        _run(request.param, whole())

    return play


def _run(variant: Variant, work: Coroutine[Any, Any, None]) -> None:
    virtual = (lambda: SimulatedLoop(None)) if variant.is_virtual else None
    with asyncio.Runner(loop_factory=virtual) as runner:
        runner.run(work)


@contextlib.asynccontextmanager
async def _started(variant: Variant, path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(variant, path)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


async def _read(store: MetadataStore, start: int, count: int) -> LogRead | None:
    read = await store.read(start)
    return read if len(read.entries) >= count else None


def test_entries_are_read_in_order_from_any_index(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        for index in range(5):
            payload = b"%d" % index
            assert await cluster.append(index + 1, index, payload=payload) is EntryOutcome.DONE
        for start in range(6):
            # Entries of another handle are seen at some time.
            read = await until(partial(_read, cluster.second, start, 5 - start))
            assert read.snapshot is None
            assert [(entry.index, entry.payload) for entry in read.entries] == [
                (index, b"%d" % index) for index in range(start, 5)
            ]

    run(scenario)


def test_only_one_append_wins_an_index(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        outcomes = await asyncio.gather(
            cluster.append(1, 0, payload=b"a"),
            cluster.append(1, 0, payload=b"b", writer=OTHER, store=cluster.second),
        )
        assert sorted(outcome.name for outcome in outcomes) == ["DONE", "LOST"]
        winner = b"a" if outcomes[0] is EntryOutcome.DONE else b"b"
        assert [entry.payload for entry in (await cluster.first.read(0)).entries] == [winner]

    run(scenario)


@pytest.mark.parametrize("end", [0, 2])
def test_an_append_elsewhere_than_at_the_end_is_lost(run: Run, end: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.append(1, 0)
        assert await cluster.append(2, end) is EntryOutcome.LOST
        assert len((await cluster.first.read(0)).entries) == 1

    run(scenario)


def test_a_repeated_append_is_stored_once_and_found(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        assert await cluster.append(1, 0) is EntryOutcome.DONE
        assert await cluster.append(1, 0) is EntryOutcome.DONE
        assert len((await cluster.second.read(0)).entries) == 1
        assert await cluster.second.position_of(WRITER, 1) == 0
        assert await cluster.second.position_of(WRITER, 2) is None
        assert await cluster.second.position_of(OTHER, 1) is None

    run(scenario)


def test_another_epoch_than_the_controllers_is_fenced(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        for epoch in (cluster.epoch - 1, cluster.epoch + 1):
            assert await cluster.append(1, 0, epoch=epoch) is EntryOutcome.FENCED
        assert (await cluster.first.read(0)).entries == ()

    run(scenario)


def test_a_new_term_fences_the_one_before(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        old = cluster.epoch
        term = await cluster.first.elect()
        assert (term.broker_id, term.epoch) == (1, old + 1)
        assert await cluster.append(1, 0, epoch=old) is EntryOutcome.FENCED
        assert await cluster.append(2, 0, epoch=term.epoch) is EntryOutcome.DONE

    run(scenario)


def test_a_live_controller_keeps_its_term_and_a_dead_one_loses_it(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        if cluster.second is cluster.first:
            cluster.second = await cluster.handle()
        await cluster.second.register_broker(2, b"2" * 16)
        assert await cluster.second.live_brokers() == {1: b"1" * 16, 2: b"2" * 16}
        assert (await cluster.second.elect()).broker_id == 1
        await cluster.first.close()
        assert await cluster.second.live_brokers() == {2: b"2" * 16}
        term = await cluster.second.elect()
        assert (term.broker_id, term.epoch) == (2, cluster.epoch + 1)

    run(scenario)


def test_a_restarted_broker_does_not_hold_the_term_of_its_former_process(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        if cluster.second is cluster.first:
            cluster.second = await cluster.handle()
        await cluster.second.register_broker(2, b"2" * 16)
        await cluster.first.close()
        again = await cluster.handle()
        await again.register_broker(1, b"n" * 16)
        assert await cluster.second.live_brokers() == {1: b"n" * 16, 2: b"2" * 16}
        term = await cluster.second.elect()
        assert (term.broker_id, term.epoch) == (2, cluster.epoch + 1)

    run(scenario)


def test_a_term_is_taken_past_a_live_controller_on_request(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        if cluster.second is cluster.first:
            cluster.second = await cluster.handle()
        await cluster.second.register_broker(2, b"2" * 16)
        past = (await cluster.first.controller()).epoch
        term = await cluster.second.elect(past=past)
        assert (term.broker_id, term.epoch) == (2, past + 1)
        kept = await cluster.first.elect(past=past)
        assert kept == term, "the term to replace was over"
        assert await cluster.append(1, 0) is EntryOutcome.FENCED

    run(scenario)


def test_a_controller_resigns_and_its_appends_are_fenced(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        old = cluster.epoch
        term = await cluster.first.resign(old)
        assert term == ControllerTerm(-1, old + 1) == await cluster.second.controller()
        assert await cluster.append(1, 0, epoch=old) is EntryOutcome.FENCED
        assert await cluster.first.resign(old) == term, "it is over"
        assert (await cluster.first.elect()).epoch == old + 2

    run(scenario)


def test_a_broker_id_can_be_registered_by_one_only(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        twin = await cluster.handle()

        async def register() -> None:
            while True:
                # It waits for an earlier process longer than a store repeats failed requests.
                with contextlib.suppress(MetadataUnavailable):
                    return await twin.register_broker(1, b"t" * 16)

        with pytest.raises(BrokerIdInUse):
            await register()
        await cluster.first.close()
        await register()
        assert await twin.live_brokers() == {1: b"t" * 16}

    run(scenario)


def test_a_report_of_an_ended_process_concerns_no_other_one(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        if cluster.second is cluster.first:
            cluster.second = await cluster.handle()
        await cluster.second.register_broker(2, b"2" * 16)
        await cluster.second.report_dead(1, b"x" * 16)
        assert await cluster.second.live_brokers() == {1: b"1" * 16, 2: b"2" * 16}
        await cluster.first.close()
        await cluster.second.report_dead(1, b"1" * 16)
        assert await cluster.second.live_brokers() == {2: b"2" * 16}

    run(scenario)


def test_a_live_broker_has_sent_a_heartbeat_and_an_ended_one_none(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        if cluster.second is cluster.first:
            cluster.second = await cluster.handle()
        await cluster.second.register_broker(2, b"2" * 16)
        assert await cluster.second.beating_brokers(60.0) == {1: b"1" * 16, 2: b"2" * 16}
        await cluster.first.close()
        # A faulty session may lose the end of the registration.
        await cluster.second.report_dead(1, b"1" * 16)
        assert await cluster.second.beating_brokers(60.0) == {2: b"2" * 16}

    run(scenario)


class Watch:
    """Waits for reported changes; a reported change makes it look again."""

    def __init__(self, store: MetadataStore) -> None:
        self._called = asyncio.Event()
        self._change = Change(0)
        store.watch(self._on_change)

    def _on_change(self, change: Change) -> None:
        self._change |= change
        self._called.set()

    async def until(self, change: Change, is_visible: Callable[[], Awaitable[bool]]) -> None:
        """Return when `is_visible`, which is asked only after reports of `change`."""
        while True:
            while change not in self._change:
                await self._called.wait()
                self._called.clear()
            self._change &= ~change
            if await is_visible():
                return


def test_a_watcher_is_called_for_entries_of_another_handle(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        if cluster.second is cluster.first:
            return
        watch = Watch(cluster.second)
        for end in range(3):
            await cluster.append(end + 1, end)

            async def has_entry(count: int = end + 1) -> bool:
                return len((await cluster.second.read(0)).entries) == count

            await watch.until(Change.ENTRIES, has_entry)

    run(scenario)


def test_a_watcher_is_called_when_a_broker_begins_and_when_it_ends(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        if cluster.second is cluster.first:
            return
        watch = Watch(cluster.second)

        async def lives(*expected: int) -> bool:
            return set(await cluster.second.live_brokers()) == set(expected)

        third = await cluster.handle()
        await third.register_broker(3, b"3" * 16)
        await watch.until(Change.BROKERS, lambda: lives(1, 3))
        await third.close()
        await watch.until(Change.BROKERS, lambda: lives(1))
        await cluster.first.close()
        await watch.until(Change.BROKERS, lives)

    run(scenario)


def test_a_watcher_is_called_for_each_term_of_another_broker(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        if cluster.second is cluster.first:
            return
        watch = Watch(cluster.second)
        for _ in range(3):
            term = await cluster.first.elect()

            async def is_known(expected: ControllerTerm = term) -> bool:
                return await cluster.second.controller() == expected

            await watch.until(Change.TERM, is_known)

    run(scenario)


def test_the_death_of_the_controller_leads_to_a_new_term_that_all_hear_of(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        if cluster.second is cluster.first:
            return
        third = await cluster.handle()
        await cluster.second.register_broker(2, b"2" * 16)
        await third.register_broker(3, b"3" * 16)
        deaths, terms = Watch(cluster.second), Watch(third)
        await cluster.first.close()

        async def is_elected() -> bool:
            return (await cluster.second.elect()).broker_id == 2

        async def is_known() -> bool:
            return (await third.controller()).broker_id == 2

        await deaths.until(Change.BROKERS, is_elected)
        await terms.until(Change.TERM, is_known)
        assert (await third.elect()).broker_id == 2

    run(scenario)


@pytest.mark.parametrize("variant", EACH_VARIANT)
def test_there_is_no_controller_before_the_first_election(variant: Variant, tmp_path: Path) -> None:
    async def scenario() -> None:
        store = variant.handle(tmp_path)
        await store.open(create=True)
        assert await store.controller() == ControllerTerm(-1, 0)
        await store.register_broker(1, b"1" * 16)
        term = await store.elect()
        assert await store.controller() == term == ControllerTerm(1, 1, b"1" * 16)
        await store.close()

    _run(variant, scenario())


def test_old_entries_give_way_to_a_snapshot(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        end = 150
        for index in range(end):
            assert await cluster.append(index + 1, index) is EntryOutcome.DONE
        await cluster.first.write_snapshot(Snapshot(end - 10, b"s" * BATCH_BYTES_MAX * 2))
        await cluster.first.write_snapshot(Snapshot(5, b"too late"))
        read = await cluster.second.read(0)
        assert read.snapshot is not None
        assert (read.snapshot.end, len(read.snapshot.payload)) == (end - 10, BATCH_BYTES_MAX * 2)
        assert [entry.index for entry in read.entries] == list(range(end - 10, end))
        recent = await cluster.second.read(end - 20)
        assert recent.snapshot is None
        assert len(recent.entries) == 20

    run(scenario)


def test_everything_is_there_after_reopening(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        payload = bytes(range(256)) * 10
        await cluster.append(1, 0, payload=payload)
        await cluster.stop()
        again = await cluster.handle()
        assert [entry.payload for entry in (await again.read(0)).entries] == [payload]
        assert await again.position_of(WRITER, 1) == 0
        await again.register_broker(1, b"n" * 16)
        assert (await again.elect()).epoch > cluster.epoch

    run(scenario)


def test_closing_twice_is_allowed(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.first.close()
        await cluster.first.close()

    run(scenario)


@pytest.mark.parametrize("variant", EACH_VARIANT)
def test_a_log_that_should_be_there_is_missed(variant: Variant, tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(MetadataMissing):
            await variant.handle(tmp_path).open(create=False)

    _run(variant, scenario())


def test_the_largest_batch_fits(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        assert await cluster.append(1, 0, payload=b"y" * BATCH_BYTES_MAX) is EntryOutcome.DONE

    run(scenario)
