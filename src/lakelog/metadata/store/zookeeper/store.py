"""The `MetadataStore` over ZooKeeper: checks each connection, repeats calls, and watches.

After each loss of a connection the first call verifies the log and registers the broker again: the
session may be a new one, which kazoo opens by itself and whose reads may go backwards. A log that
does not continue the state that this broker has seen makes every later call fail.

One task sends heartbeats and arms the watches. A watch ends with its connection and with its first
report; the task then reads again, so that no change is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from lakelog.base.errors import is_shortage
from lakelog.base.events import FailingTask
from lakelog.metadata.errors import (
    BrokerIdInUse,
    MetadataCorrupt,
    MetadataError,
    MetadataMissing,
    MetadataUnavailable,
)
from lakelog.metadata.store import api
from lakelog.metadata.store.chain import Marks
from lakelog.metadata.store.zookeeper import session as zk
from lakelog.metadata.store.zookeeper.brokers import Brokers
from lakelog.metadata.store.zookeeper.layout import NO_TERM, Layout
from lakelog.metadata.store.zookeeper.log import EntryLog, Terms
from lakelog.runtime.api import Clock, Random

_logger = logging.getLogger(__name__)

T = TypeVar("T")

SESSION_TIMEOUT_S = 4.0
_ALL = api.Change.ENTRIES | api.Change.BROKERS | api.Change.TERM
_HEARTBEATS_PER_TIMEOUT = 5
_RETRY_S = 0.05
"""Seconds before a call is repeated on the next connection."""


class ZooKeeperStore:
    """A `MetadataStore`. All calls come from one event loop."""

    entry_bytes_max = api.BATCH_BYTES_MAX

    def __init__(
        self,
        session: zk.ZooKeeperSession,
        root: str,
        marks: Marks,
        clock: Clock,
        random: Random,
        *,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        entries_kept: int = api.ENTRIES_KEPT,
    ) -> None:
        layout = Layout(root)
        self._session = session
        self._random = random
        self._clock = clock
        self._timeout_s = session_timeout_s
        self._beat_every_s = session_timeout_s / _HEARTBEATS_PER_TIMEOUT
        self._terms = Terms(session, layout)
        self._log = EntryLog(session, layout, marks, self._terms, entries_kept=entries_kept)
        self._brokers = Brokers(session, layout, clock.monotonic, session_timeout_s)
        self._watchers: list[Callable[[api.Change], None]] = []
        self._on_device_failure: Callable[[], object] = tuple
        self._connections = 0
        self._verified = -1
        self._verifying = asyncio.Lock()
        self._failure: MetadataError | None = None
        self._stale = _ALL
        self._reported_term = api.ControllerTerm(-1, 0)
        self._reported_brokers = 0
        self.heartbeat_s = float("-inf")
        self._unreported = api.NO_CHANGE
        """Changes that no watcher knows yet: a report of them has failed."""
        self._wake = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None
        self._open = False

    async def open(self, *, create: bool) -> None:
        log_id = self._random.bytes(16)
        self._open = True
        try:
            await self._session.open(self._on_connection)
            await self._repeat(
                lambda: self._steadily(lambda: self._log.open(create=create, log_id=log_id))
            )
        except BaseException:
            await self.close()
            raise
        self._follower = asyncio.get_running_loop().create_task(
            self._follow(), name="metadata-watch"
        )

    async def append(self, batch: api.MetadataBatch, expected_end: int) -> api.AppendOutcome:
        assert len(batch.payload) <= self.entry_bytes_max
        return await self._call(lambda: self._log.append(batch, expected_end))

    async def position_of(self, writer_id: bytes, serial: int) -> int | None:
        return await self._read(lambda: self._log.position_of(writer_id, serial))

    async def read(self, from_index: int) -> api.LogRead:
        return await self._read(lambda: self._log.read(from_index))

    async def write_snapshot(self, snapshot: api.Snapshot) -> None:
        await self._call(lambda: self._log.write_snapshot(snapshot))

    def watch(self, callback: Callable[[api.Change], None]) -> None:
        self._watchers.append(callback)

    def watch_device(self, on_failure: Callable[[], object]) -> None:
        self._on_device_failure = on_failure

    async def register_broker(self, broker_id: int, incarnation_id: bytes) -> None:
        await self._call(lambda: self._brokers.register(broker_id, incarnation_id))

    async def live_brokers(self) -> Mapping[int, bytes]:
        return await self._read(self._live)

    async def beating_brokers(self, within_s: float) -> Mapping[int, bytes]:
        return await self._read(lambda: self._brokers.beating(within_s))

    async def report_dead(self, broker_id: int, incarnation_id: bytes) -> None:
        await self._call(lambda: self._brokers.end(broker_id, incarnation_id))
        self._mark_stale(api.Change.BROKERS)

    async def controller(self) -> api.ControllerTerm:
        return (await self._read(self._terms.current)).public()

    async def elect(self, *, past: int = -1) -> api.ControllerTerm:
        return await self._call(lambda: self._elect(past))

    async def resign(self, epoch: int) -> api.ControllerTerm:
        async def work() -> api.ControllerTerm:
            term = await self._terms.current()
            if term.epoch == epoch:
                term = await self._terms.take(NO_TERM.broker_id, NO_TERM.incarnation_id, term)
            return term.public()

        return await self._call(work)

    async def state(self) -> api.LogState:
        async def work() -> api.LogState:
            term = await self._terms.current()
            return await self._log.state(term.epoch)

        return await self._read(work)

    async def load(self, state: api.LogState, payload: bytes) -> None:
        self._open = True
        await self._session.open(self._on_connection)
        await self._log.load(state, payload)

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
        await self._session.close()

    async def _elect(self, past: int) -> api.ControllerTerm:
        mine = self._brokers.registered
        term = await self._terms.current()
        # A live controller keeps its term. A broker that restarted takes a new term even if it was
        # the controller: what its former process had under way must fail the check of the epoch.
        is_others = term.broker_id != mine.broker_id and term.epoch != past
        if is_others and term.public().is_held(await self._brokers.live()):
            return term.public()
        taken = await self._terms.take(mine.broker_id, mine.incarnation_id, term)
        return taken.public()

    async def _live(self) -> Mapping[int, bytes]:
        await self._log.refresh()
        return await self._brokers.live()

    async def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work` on a verified connection."""

        async def verified() -> T:
            await self._verify()
            return await self._steadily(work)

        return await self._repeat(verified)

    async def _read(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of reads that were all done on one verified connection."""

        async def steady() -> T:
            connections = self._connections
            result = await work()
            # Each of the reads is right by itself, but kazoo may have opened a new session at a
            # server that lags behind: together they would show a state that never was.
            if connections != self._connections:
                raise zk.Disconnected("the connection was lost between two reads")
            return result

        return await self._call(steady)

    async def _steadily(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`, which may blame the log for a server that lags behind.

        Raises `Disconnected` in place of such an error after a change of the connection.
        """
        connections = self._connections
        try:
            return await work()
        # A server that lags behind lacks entries that this broker has seen, exactly like an
        # ensemble that lost them. Only on an unchanged connection is it a loss.
        except (MetadataCorrupt, MetadataMissing) as error:
            if connections == self._connections:
                raise
            raise zk.Disconnected("the connection was lost during a check") from error

    async def _repeat(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat `work` on each new connection, for one session timeout at most."""
        deadline_s = self._clock.monotonic() + self._timeout_s
        while True:
            if not self._open:
                raise MetadataUnavailable("the metadata store is closed")
            try:
                return await work()
            # The outcome of an interrupted write is unknown. Repeating it is safe: entries have
            # numbers, and each batch names its writer and serial, so the log finds its own entry.
            except zk.Disconnected:
                if self._clock.monotonic() > deadline_s:
                    raise
            except OSError as error:
                self._note_device(error)
                raise MetadataUnavailable(f"the mark of the metadata log: {error}") from error
            await asyncio.sleep(_RETRY_S)

    async def _verify(self) -> None:
        """Check the log and register the broker, if the connection is new."""
        async with self._verifying:
            # For good: an ensemble that was wiped or restored from an old backup may look right
            # again later, while brokers have acted on the lost entries.
            if self._failure is not None:
                raise self._failure
            connections = self._connections
            if self._verified == connections:
                return
            try:
                await self._steadily(self._log.verify)
                await self._brokers.restore()
            except (MetadataCorrupt, BrokerIdInUse) as error:
                self._failure = error
                raise
            self._verified = connections

    def _note_device(self, error: OSError) -> None:
        if not is_shortage(error):
            self._on_device_failure()

    def _on_connection(self) -> None:
        """Distrust earlier reads, and arm all watches again."""
        self._connections += 1
        self._mark_stale(_ALL)

    def _mark_stale(self, change: api.Change) -> None:
        self._stale |= change
        self._wake.set()

    async def _follow(self) -> None:
        """Runs until cancelled; a failed poll is repeated at the next one."""
        task = FailingTask(_logger, "watching the ensemble")
        while True:
            self._wake.clear()
            try:
                await self._call(self._poll)
            except MetadataUnavailable:
                pass
            except MetadataError:
                self._report(_ALL)  # the caller's next call raises the error, too
                return
            except Exception as bug:  # noqa: BLE001 - without heartbeats others count it dead
                task.failed(bug)
            else:
                task.succeeded()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._beat_every_s):
                    await self._wake.wait()

    async def _poll(self) -> None:
        """Send a heartbeat if one is due, arm the watches that have ended, and report changes."""
        # Taken before the reads: a watch that fires during them marks its part again, and the next
        # poll reads again.
        stale, self._stale = self._stale, api.NO_CHANGE
        try:
            if self._clock.monotonic() - self.heartbeat_s >= self._beat_every_s:
                await self._beat()
                stale |= api.Change.BROKERS  # heartbeats that no longer come have no watch
            self._unreported |= await self._look(stale)
        except BaseException:
            # These watches may not be armed, and nothing else would report their changes.
            self._stale |= stale
            raise
        if self._unreported:
            self._report(self._unreported)
            self._unreported = api.NO_CHANGE

    def _report(self, changed: api.Change) -> None:
        for callback in self._watchers:
            callback(changed)

    async def _beat(self) -> None:
        sent_s = self._clock.monotonic()
        # The node is gone: the session expired while the process or its connection was stalled, and
        # other brokers may have fenced this one.
        if not await self._brokers.beat():
            self._verified = -1
            await self._verify()
        self.heartbeat_s = sent_s

    async def _look(self, stale: api.Change) -> api.Change:
        """Arm the watches of these parts again; return the parts with changes to report."""
        changed = api.NO_CHANGE
        if api.Change.ENTRIES in stale and await self._log.look(self._marking(api.Change.ENTRIES)):
            changed |= api.Change.ENTRIES
        if api.Change.TERM in stale:
            term = (await self._terms.look(self._marking(api.Change.TERM))).public()
            if term != self._reported_term:
                self._reported_term = term
                changed |= api.Change.TERM
        if api.Change.BROKERS in stale:
            await self._brokers.live(self._marking(api.Change.BROKERS))
            if self._brokers.changes != self._reported_brokers:
                self._reported_brokers = self._brokers.changes
                changed |= api.Change.BROKERS
        return changed

    def _marking(self, change: api.Change) -> Callable[[], None]:
        """Return a callback for a watch of this part."""
        return lambda: self._mark_stale(change)
