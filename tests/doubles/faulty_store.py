"""A metadata store with the failures of a remote store, repeatable from a seed.

It wraps a real store. Results may be late, unknown or an error, but the log contains only entries
of the inner store. An append with an unknown outcome was dropped, was done, or will be done some
iterations of the loop later. Watchers are called late, and some calls report more changes than
there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from lakelog.metadata.errors import MetadataUnavailable
from lakelog.metadata.store.api import (
    AppendOutcome,
    Change,
    ControllerTerm,
    EntryOutcome,
    LogRead,
    MetadataBatch,
    MetadataStore,
    Snapshot,
)
from lakelog.runtime.api import Random

_UNKNOWN = AppendOutcome(EntryOutcome.UNKNOWN, -1)


class FaultyStore:
    """A `MetadataStore`. Percentages are of appends; delays are in iterations of the loop."""

    def __init__(
        self,
        inner: MetadataStore,
        random: Random,
        *,
        unknown_percent: int = 30,
        unavailable_percent: int = 0,
        delay_iterations_max: int = 5,
    ) -> None:
        self._inner = inner
        self._random = random
        self._unknown_percent = unknown_percent
        self._unavailable_percent = unavailable_percent
        self._delay_iterations_max = delay_iterations_max
        self._late: set[asyncio.Task[AppendOutcome]] = set()
        self._reports: set[asyncio.Task[None]] = set()
        self._registered: tuple[int, bytes] | None = None
        self._session = False
        self.entry_bytes_max = inner.entry_bytes_max

    async def open(self, *, create: bool) -> None:
        await self._inner.open(create=create)
        self._session = True

    async def append(self, batch: MetadataBatch, expected_end: int) -> AppendOutcome:
        await self._reach()
        if self._random.below(100) >= self._unknown_percent:
            return await self._inner.append(batch, expected_end)
        fate = self._random.below(3)
        if fate == 0:
            await self._inner.append(batch, expected_end)
        elif fate == 1:
            # A remote store may carry out a request after the client has given up: the caller's
            # repetition must then find it.
            late = asyncio.get_running_loop().create_task(self._append_late(batch, expected_end))
            self._late.add(late)
            late.add_done_callback(self._forget)
        return _UNKNOWN

    async def position_of(self, writer_id: bytes, serial: int) -> int | None:
        await self._reach()
        return await self._inner.position_of(writer_id, serial)

    async def read(self, from_index: int) -> LogRead:
        await self._reach()
        return await self._inner.read(from_index)

    async def write_snapshot(self, snapshot: Snapshot) -> None:
        await self._reach()
        await self._inner.write_snapshot(snapshot)

    def watch(self, callback: Callable[[Change], None]) -> None:
        self._inner.watch(lambda change: self._report(callback, change))

    def watch_device(self, on_failure: Callable[[], object]) -> None:
        self._inner.watch_device(on_failure)

    async def register_broker(self, broker_id: int, incarnation_id: bytes) -> None:
        await self._reach()
        await self._inner.register_broker(broker_id, incarnation_id)
        self._registered = (broker_id, incarnation_id)

    async def live_brokers(self) -> Mapping[int, bytes]:
        await self._reach()
        return await self._inner.live_brokers()

    async def beating_brokers(self, within_s: float) -> Mapping[int, bytes]:
        await self._reach()
        return await self._inner.beating_brokers(within_s)

    @property
    def heartbeat_s(self) -> float:
        return self._inner.heartbeat_s

    async def report_dead(self, broker_id: int, incarnation_id: bytes) -> None:
        await self._reach()
        await self._inner.report_dead(broker_id, incarnation_id)

    async def controller(self) -> ControllerTerm:
        await self._reach()
        return await self._inner.controller()

    async def elect(self, *, past: int = -1) -> ControllerTerm:
        await self._reach()
        return await self._inner.elect(past=past)

    async def resign(self, epoch: int) -> ControllerTerm:
        await self._reach()
        return await self._inner.resign(epoch)

    async def close(self) -> None:
        await self.lose_session()

    async def lose_session(self) -> None:
        """End the session: other brokers see this one die.

        Every call raises `MetadataUnavailable` until `restore_session`. Late appends finish first.
        """
        self._session = False
        if self._late:
            await asyncio.gather(*self._late, return_exceptions=True)
        await self._inner.close()
        if self._reports:
            await asyncio.gather(*self._reports)

    async def restore_session(self) -> None:
        """Register the same broker again; another broker may be the controller by now.

        Raises the errors of `open` and `register_broker`.
        """
        await self._inner.open(create=False)
        if self._registered is not None:
            await self._inner.register_broker(*self._registered)
        self._session = True

    async def _append_late(self, batch: MetadataBatch, expected_end: int) -> AppendOutcome:
        await self._delay()
        return await self._inner.append(batch, expected_end)

    def _report(self, callback: Callable[[Change], None], change: Change) -> None:
        if self._random.below(4) == 0:
            # A watcher may be called for changes that did not happen (see the contract).
            change = ~Change(0)
        report = asyncio.get_running_loop().create_task(self._report_late(callback, change))
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    async def _report_late(self, callback: Callable[[Change], None], change: Change) -> None:
        await self._delay()
        callback(change)

    def _forget(self, late: asyncio.Task[AppendOutcome]) -> None:
        """Ignore the outcome of an append for which no caller waits any more."""
        self._late.discard(late)
        if not late.cancelled():
            late.exception()

    async def _reach(self) -> None:
        """Take some iterations of the loop; raise `MetadataUnavailable` if the store is not
        reached."""
        await self._delay()
        if not self._session:
            raise MetadataUnavailable("the session is lost")
        if self._random.below(100) < self._unavailable_percent:
            raise MetadataUnavailable("injected")

    async def _delay(self) -> None:
        for _ in range(self._random.below(self._delay_iterations_max + 1)):
            await asyncio.sleep(0)
