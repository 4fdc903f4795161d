"""A metadata store in memory for one broker, which fails as a test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakelog.base.errors import ErrorCode
from lakelog.metadata.errors import MetadataError, MetadataUnavailable
from lakelog.metadata.store.api import (
    BATCH_BYTES_MAX,
    AppendOutcome,
    Change,
    ControllerTerm,
    Entry,
    EntryOutcome,
    LogRead,
    MetadataBatch,
    Snapshot,
)


class MemoryMetadata:
    """A `MetadataStore` with one handle, so that no other broker changes it.

    Attributes:
        fault: raises the error of an append, or returns UNKNOWN if its outcome is; the entry is
            not written then.
    """

    entry_bytes_max = BATCH_BYTES_MAX
    heartbeat_s = float("inf")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._positions: dict[bytes, tuple[int, int]] = {}
        self._brokers: dict[int, bytes] = {}
        self._term = ControllerTerm(-1, 0)
        self.fault: MetadataError | EntryOutcome | None = None

    async def open(self, *, create: bool) -> None:
        pass

    async def append(self, batch: MetadataBatch, expected_end: int) -> AppendOutcome:
        if isinstance(self.fault, MetadataError):
            raise self.fault
        end = len(self._entries)
        if self.fault is not None:
            return AppendOutcome(self.fault, -1)
        if expected_end != end:
            return AppendOutcome(EntryOutcome.LOST, end)
        self._entries.append(Entry(end, batch.payload))
        self._positions[batch.writer_id] = (batch.serial, end)
        return AppendOutcome(EntryOutcome.DONE, end + 1)

    async def position_of(self, writer_id: bytes, serial: int) -> int | None:
        stored, index = self._positions.get(writer_id, (-1, -1))
        return index if stored == serial else None

    async def read(self, from_index: int) -> LogRead:
        return LogRead(None, tuple(self._entries[from_index:]))

    async def write_snapshot(self, snapshot: Snapshot) -> None:
        pass

    def watch(self, callback: Callable[[Change], None]) -> None:
        pass

    def watch_device(self, on_failure: Callable[[], object]) -> None:
        pass

    async def register_broker(self, broker_id: int, incarnation_id: bytes) -> None:
        self._brokers[broker_id] = incarnation_id

    async def live_brokers(self) -> Mapping[int, bytes]:
        return self._brokers

    async def beating_brokers(self, within_s: float) -> Mapping[int, bytes]:
        return self._brokers

    async def report_dead(self, broker_id: int, incarnation_id: bytes) -> None:
        if self._brokers.get(broker_id) == incarnation_id:
            del self._brokers[broker_id]

    async def controller(self) -> ControllerTerm:
        return self._term

    async def elect(self, *, past: int = -1) -> ControllerTerm:
        broker_id, incarnation_id = next(iter(self._brokers.items()))
        self._term = ControllerTerm(broker_id, self._term.epoch + 1, incarnation_id)
        return self._term

    async def resign(self, epoch: int) -> ControllerTerm:
        self._term = ControllerTerm(-1, self._term.epoch + 1)
        return self._term

    async def close(self) -> None:
        pass


FAILED_CHANGES = [
    (MetadataUnavailable("the store is gone"), ErrorCode.KAFKA_STORAGE_ERROR),
    (EntryOutcome.UNKNOWN, ErrorCode.REQUEST_TIMED_OUT),
]
"""Faults, and the error code of a request whose change of metadata meets them: the change is
definitely not made, or it is unknown whether it is."""
