"""A metadata log in memory: what an ensemble would keep, and each broker's handle to it.

It is as durable as the interface promises: what was answered as done survives every broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakelog.metadata.errors import BrokerIdInUse, MetadataMissing
from lakelog.metadata.store.api import (
    BATCH_BYTES_MAX,
    AppendOutcome,
    ControllerTerm,
    Entry,
    LogRead,
    MetadataBatch,
    Outcome,
    Snapshot,
)

_ENTRIES_KEPT = 20


class MetadataMemory:
    """The log itself. `handle` gives a broker its store."""

    def __init__(self) -> None:
        self.exists = False
        self.end = 0
        self.entries: list[Entry] = []
        self.snapshot: Snapshot | None = None
        self.writers: dict[bytes, tuple[int, int]] = {}
        self.term = ControllerTerm(-1, 0)
        self.stores: list[MemoryStore] = []

    def handle(self, is_alive: Callable[[], bool] = lambda: True) -> MemoryStore:
        """`is_alive` tells whether the broker's process still runs."""
        return MemoryStore(self, is_alive)

    def live(self) -> dict[int, bytes]:
        self.stores = [store for store in self.stores if store.is_alive()]
        return dict(store.registered for store in self.stores if store.registered is not None)


class MemoryStore:
    """A `MetadataStore`."""

    def __init__(self, log: MetadataMemory, is_alive: Callable[[], bool]) -> None:
        self._log = log
        self.is_alive = is_alive
        self.registered: tuple[int, bytes] | None = None
        self._watchers: list[Callable[[], None]] = []

    async def open(self, *, create: bool) -> None:
        if not self._log.exists and not create:
            raise MetadataMissing("there are logs, but nothing that describes them")
        self._log.exists = True
        self._log.stores.append(self)

    async def append(self, batch: MetadataBatch, expected_end: int) -> AppendOutcome:
        assert len(batch.payload) <= BATCH_BYTES_MAX
        log = self._log
        if batch.controller_epoch != log.term.epoch:
            return AppendOutcome(Outcome.FENCED, log.end)
        if expected_end != log.end:
            return AppendOutcome(Outcome.LOST, log.end)
        log.entries.append(Entry(log.end, batch.payload))
        log.writers[batch.writer_id] = batch.serial, log.end
        log.end += 1
        for store in log.stores:
            if store is not self and store.is_alive():
                store.tell()
        return AppendOutcome(Outcome.DONE, log.end)

    def tell(self) -> None:
        for callback in self._watchers:
            callback()

    async def position_of(self, writer_id: bytes, serial: int) -> int | None:
        known, position = self._log.writers.get(writer_id, (-1, -1))
        return position if known == serial else None

    async def read(self, from_index: int) -> LogRead:
        log = self._log
        first = log.entries[0].index if log.entries else log.end
        snapshot = None
        if log.snapshot is not None and (from_index == 0 or from_index < first):
            snapshot = log.snapshot
            from_index = snapshot.end
        return LogRead(snapshot, tuple(log.entries[max(from_index - first, 0) :]))

    async def write_snapshot(self, snapshot: Snapshot) -> None:
        log = self._log
        if log.snapshot is None or snapshot.end > log.snapshot.end:
            log.snapshot = snapshot
            kept_from = snapshot.end - _ENTRIES_KEPT
            log.entries = [entry for entry in log.entries if entry.index >= kept_from]

    def watch(self, callback: Callable[[], None]) -> None:
        self._watchers.append(callback)

    async def register_broker(self, broker_id: int, incarnation_id: bytes) -> None:
        if broker_id in self._log.live():
            raise BrokerIdInUse(f"broker {broker_id} is running")
        self.registered = broker_id, incarnation_id

    async def live_brokers(self) -> Mapping[int, bytes]:
        return self._log.live()

    async def elect(self) -> ControllerTerm:
        assert self.registered is not None
        log, broker_id = self._log, self.registered[0]
        holder = log.term.broker_id
        if holder == broker_id or holder not in log.live():
            log.term = ControllerTerm(broker_id, log.term.epoch + 1)
        return log.term

    async def close(self) -> None:
        self.registered = None
        if self in self._log.stores:
            self._log.stores.remove(self)
