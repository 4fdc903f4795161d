"""Parts of the ZooKeeper store over a simulated ensemble, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from doubles.randomness import SeededRandom
from doubles.zookeeper import Faults, SimulatedEnsemble, SimulatedSession
from lakelog.metadata.store.api import AppendOutcome, MetadataBatch
from lakelog.metadata.store.chain import Marks, MemoryMarks
from lakelog.metadata.store.zookeeper.layout import Layout, Term
from lakelog.metadata.store.zookeeper.log import EntryLog, Terms
from lakelog.metadata.store.zookeeper.store import ZooKeeperStore
from simulator.engine.loop import SimulatedLoop
from virtual_time import run_in_virtual_time

T = TypeVar("T")

LAYOUT = Layout("/lakelog")
WRITER = b"writer-aaaaaaaaa"
OTHER = b"writer-bbbbbbbbb"
SESSION_TIMEOUT_S = 10.0


class VirtualClock:
    """A `Clock` that shows the time of the loop."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def wall_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)


class Handle:
    """A log and its terms in one session."""

    def __init__(self, session: SimulatedSession, marks: Marks | None = None) -> None:
        self.session = session
        self.marks = marks or MemoryMarks()
        self.terms = Terms(session, LAYOUT)
        self.log = EntryLog(session, LAYOUT, self.marks, self.terms)

    async def open(self, log_id: bytes = b"i" * 16) -> None:
        await self.session.open(lambda: None)
        await self.log.open(create=True, log_id=log_id)

    async def take_term(self, broker_id: int = 1) -> Term:
        return await self.terms.take(broker_id, b"1" * 16, await self.terms.current())

    async def append(
        self, index: int, payload: bytes = b"x", writer: bytes = WRITER
    ) -> AppendOutcome:
        """Append with a serial of one above the index, as a writer without rivals does."""
        batch = MetadataBatch(writer, index + 1, self.terms.newest.epoch, payload)
        return await self.log.append(batch, index)


class World:
    """An ensemble, the clock, and stores and handles over them."""

    def __init__(self, loop: SimulatedLoop, faults: Faults | None, seed: int) -> None:
        self.loop = loop
        self.clock = VirtualClock(loop)
        self.ensemble = SimulatedEnsemble(SeededRandom(seed), faults)

    async def handle(self, marks: Marks | None = None) -> Handle:
        handle = Handle(self.ensemble.session(), marks)
        await handle.open()
        return handle

    def store(
        self, session: SimulatedSession | None = None, marks: Marks | None = None
    ) -> ZooKeeperStore:
        return ZooKeeperStore(
            session or self.ensemble.session(),
            LAYOUT.root,
            marks or MemoryMarks(),
            self.clock,
            SeededRandom(5),
            session_timeout_s=SESSION_TIMEOUT_S,
        )


def in_world(
    work: Callable[[World], Coroutine[Any, Any, T]],
    *,
    faults: Faults | None = None,
    seed: int = 1,
) -> T:
    """Run a coroutine against an ensemble of its own and return its result."""
    return run_in_virtual_time(lambda loop: work(World(loop, faults, seed)))
