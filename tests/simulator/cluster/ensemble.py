"""Sessions of brokers with the simulated ZooKeeper ensemble, over the network of the world.

The ensemble ends a session that it has not heard from for the session timeout: the process is dead
or paused, or the network between them is cut. A client that hears nothing for two thirds of it
gives up its connection. A request whose response is cut off is carried out all the same.
"""

from __future__ import annotations

import asyncio
import random
from contextvars import Context

from doubles.zookeeper import Faults, SimulatedEnsemble, SimulatedSession
from lakelog.metadata.store.chain import MemoryMarks
from lakelog.metadata.store.zookeeper.address import EnsembleAddress
from lakelog.metadata.store.zookeeper.layout import Layout, StoredEntry, Term
from lakelog.metadata.store.zookeeper.session import (
    Create,
    Disconnected,
    Node,
    Notify,
    Operation,
    OutcomeUnknown,
    Refusal,
)
from lakelog.metadata.store.zookeeper.store import ZooKeeperStore
from lakelog.runtime.api import Random, Tasks
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.cluster.plan import ENTRIES_KEPT
from simulator.engine.process import Process
from simulator.engine.simulator import Simulator
from simulator.engine.tasks import StreamRandom
from simulator.machine.machine import Machine
from simulator.network.network import Network

STORE = "store"
"""The name of the ensemble on the network."""
_ROOT = "/lakelog"
_TICKS_PER_TIMEOUT = 8
_POLL_S = 0.05
_DELAY_S = (0.000_2, 0.002)


class NetworkedSession(SimulatedSession):
    """A `Session` of one process. Times are seconds of the loop."""

    def __init__(
        self,
        ensemble: SimulatedEnsemble,
        network: Network,
        process: Process,
        rng: random.Random,
        timeout_s: float,
    ) -> None:
        super().__init__(ensemble)
        self._network = network
        self._process = process
        self._rng = rng
        self._timeout_s = timeout_s
        self._heard_at = self._answered_at = network.loop.time()
        self._is_expired = False

    async def open(self, on_connection: Notify) -> None:
        while not (self._sends and self._receives):  # noqa: ASYNC110 - as a SYN is repeated
            await asyncio.sleep(_POLL_S)
        self._heard_at = self._answered_at = self._network.loop.time()
        await super().open(on_connection)
        self._tick()

    async def get(self, path: str, on_change: Notify | None = None) -> Node | None:
        connections = self._connections
        found = await super().get(path, on_change)
        await self._response(connections, Disconnected)
        return found

    async def children(self, path: str, on_change: Notify | None = None) -> list[str] | None:
        connections = self._connections
        found = await super().children(path, on_change)
        await self._response(connections, Disconnected)
        return found

    async def write(self, *operations: Operation) -> Refusal | None:
        async with self._order:
            try:
                await self._reach()
            except Disconnected as error:
                raise OutcomeUnknown(str(error)) from error
            connections, refusal = self._connections, self._commit(operations)
        await self._response(connections, OutcomeUnknown)
        return refusal

    async def close(self) -> None:
        if self._sends:
            await super().close()
        self._closed = True

    @property
    def _sends(self) -> bool:
        """Whether the ensemble hears from the process."""
        process = self._process
        here = process.host
        is_running = process.alive and not process.is_paused and here not in self._network.down
        return is_running and not self._network.is_cut(here, STORE)

    @property
    def _receives(self) -> bool:
        return not self._network.is_cut(STORE, self._process.host)

    async def _reach(self) -> None:
        """Wait for a connection and for the way to the ensemble. Raises `Disconnected`."""
        low, high = _DELAY_S
        await asyncio.sleep(low + self._rng.random() * (high - low))
        until = self._network.loop.time() + self._timeout_s
        while self._is_expired or not self._connected.is_set() or not self._sends:
            if self._closed or self._network.loop.time() >= until:
                raise Disconnected("the ensemble does not answer")
            await asyncio.sleep(_POLL_S)

    async def _response(
        self, connections: int, failure: type[Disconnected] | type[OutcomeUnknown]
    ) -> None:
        """Wait for the way back; raise `failure` if the connection is lost meanwhile."""
        while connections == self._connections and not self._receives:  # noqa: ASYNC110 - a cut has no event
            await asyncio.sleep(_POLL_S)
        if connections != self._connections:
            raise failure("the connection was lost before the response")

    def _tick(self) -> None:
        """Have both sides notice how long they have heard nothing; runs outside of the process."""
        if self._closed or (self._is_expired and not self._process.alive):
            return
        loop = self._network.loop
        now, sends = loop.time(), self._sends
        if sends:
            self._heard_at = now
            if self._receives:
                self._answered_at = now
        if not self._is_expired and now - self._heard_at > self._timeout_s:
            self._is_expired = True
            self._ensemble.end_session(self.session_id)
        self._notice(now)
        loop.call_later(self._timeout_s / _TICKS_PER_TIMEOUT, self._tick, context=Context())

    def _notice(self, now: float) -> None:
        """Lose or regain the connection, as the process sees it."""
        if not self._process.alive or self._process.is_paused:
            return
        is_connected = self._connected.is_set()
        if is_connected and (self._is_expired or now - self._answered_at > self._timeout_s * 2 / 3):
            self._connected.clear()
            self._connections += 1
            self._in_process(self._on_connection)
        elif not is_connected and self._answered_at == now:
            if self._is_expired:
                self.session_id = self._ensemble.new_session_id()
                self._is_expired, self._seen = False, 0
            self._in_process(self._connect)

    def _in_process(self, callback: Notify) -> None:
        self._network.loop.call_soon(callback, context=self._process.context())


class EnsembleHandle(ZooKeeperStore):
    """The store of one process; the ensemble notices by itself that it was killed."""

    def release(self) -> None:
        """Do nothing: the session expires."""


class EnsemblePlace:
    """A `MetadataPlace` of one machine: the ensemble, and the mark in its data folder."""

    def __init__(
        self,
        simulator: Simulator,
        network: Network,
        ensemble: SimulatedEnsemble,
        machine: Machine,
        timeout_s: float,
        entry_bytes_max: int,
    ) -> None:
        self._network = network
        self._entry_bytes_max = entry_bytes_max
        self._ensemble = ensemble
        self._machine = machine
        self._timeout_s = timeout_s
        self._rng = simulator.random_stream(f"{machine.name} session")
        self._marks = MemoryMarks()

    location = EnsembleAddress((f"{STORE}:2181",), _ROOT)

    def wipe(self) -> None:
        """Lose the mark with the disk."""
        self._marks = MemoryMarks()

    def handle(self, tasks: Tasks, chance: Random, process: Process) -> EnsembleHandle:
        session = NetworkedSession(
            self._ensemble, self._network, process, self._rng, self._timeout_s
        )
        handle = EnsembleHandle(
            session,
            _ROOT,
            self._marks,
            self._machine.clock,
            chance,
            session_timeout_s=self._timeout_s,
            entries_kept=ENTRIES_KEPT,
        )
        handle.entry_bytes_max = self._entry_bytes_max
        return handle


class JudgedEnsemble(SimulatedEnsemble):
    """An ensemble that compares each entry of the metadata log with the controller's term."""

    def __init__(self, random: Random, findings: Findings) -> None:
        super().__init__(random, Faults())
        self._findings = findings
        self._layout = Layout(_ROOT)

    def commit(self, session_id: int, operations: tuple[Operation, ...]) -> Refusal | None:
        """Carry out a transaction, and check the term of an entry that it appends."""
        refusal = super().commit(session_id, operations)
        prefix, term_path = f"{self._layout.log}/", self._layout.controller
        for operation in operations if refusal is None else ():
            if isinstance(operation, Create) and operation.path.startswith(prefix):
                entry = StoredEntry.decode(operation.path, operation.data)
                term = Term.decode(term_path, self.data(term_path), 0)
                self._findings.counts["entries"] += 1
                self._findings.expect(
                    Law.ONE_TERM,
                    entry.controller_epoch == term.epoch,
                    f"{operation.path} is of term {entry.controller_epoch}, in term {term.epoch}",
                )
        return refusal


def ensemble_of(simulator: Simulator, findings: Findings) -> SimulatedEnsemble:
    """Return the ensemble of a world; its own random requests do not fail."""
    return JudgedEnsemble(StreamRandom(simulator.random_stream(STORE)), findings)
