"""What every metadata store does, whatever keeps it (one contract suite runs on all).

The log is a sequence of entries with indexes 0, 1, 2, ...; each holds one batch, whole or not at
all. `append` is compare-and-append: it names the index the entry will have, and the controller
epoch under which it was decided. Exactly one writer can win an index, and a writer whose epoch was
superseded can win none.

An outcome may be unknown (a session lost in mid-call). Each batch therefore carries its writer's
id and serial: repeat the very same append until it is done or lost, then ask `position_of`; lost
and found there means an earlier attempt was the winner.

A watcher is called after every change that another handle made: entries, live brokers, the
controller's term. Some calls have no cause, and one call may stand for several changes, but no
change stays without a call, however it came about: a killed process cannot announce its death.

Not in the contract: that a reader sees an entry the moment another process wrote it, or how long
entries before the newest snapshot are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import NamedTuple, Protocol

BATCH_BYTES_MAX = 900_000
"""Payload of one entry; below ZooKeeper's 1 MiB with room for the rest of the call."""


class MetadataBatch(NamedTuple):
    """`payload` is what `encode_records` gives; `serial` rises with each batch of a writer."""

    writer_id: bytes
    serial: int
    controller_epoch: int
    payload: bytes


class Outcome(Enum):
    DONE = "done"
    LOST = "lost"
    """Definitely not done: another entry has that index."""
    FENCED = "fenced"
    """Definitely not done: a newer controller was elected."""
    UNKNOWN = "unknown"


class AppendOutcome(NamedTuple):
    """`end` is the index of the next entry, -1 when unknown."""

    outcome: Outcome
    end: int


class Snapshot(NamedTuple):
    """Records that lead to the image after the entries below `end`; may exceed a batch's size."""

    end: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Entry:
    index: int
    payload: bytes


class LogRead(NamedTuple):
    """`entries` without gaps, from the asked index or from the end of `snapshot` on.

    A snapshot is given to who asks from 0, and when entries from the asked index on are gone.
    """

    snapshot: Snapshot | None
    entries: tuple[Entry, ...]


class ControllerTerm(NamedTuple):
    """The last elected controller and its epoch, which only rises.

    Before the first election it is broker -1 at epoch 0.
    """

    broker_id: int
    epoch: int


class Change(Flag):
    """The parts of the store that may have changed."""

    ENTRIES = auto()
    BROKERS = auto()
    """A broker registered, closed, died or stopped sending heartbeats."""
    TERM = auto()


NO_CHANGE = Change(0)


class MetadataStore(Protocol):
    """Every call is asynchronous and completes on the loop.

    Any may raise `MetadataUnavailable` (not carried out, try again) or `MetadataOffline`.
    """

    async def open(self, *, create: bool) -> None:
        """`create` only when there is nothing yet to have metadata of.

        Raises `MetadataMissing` when there is no log and `create` is false, `MetadataCorrupt`,
        `MetadataUnsupported`.
        """
        ...

    async def append(self, batch: MetadataBatch, expected_end: int) -> AppendOutcome:
        """Durable once done. At most `BATCH_BYTES_MAX` bytes of payload."""
        ...

    async def position_of(self, writer_id: bytes, serial: int) -> int | None:
        """The index of a writer's newest stored batch if it has that serial."""
        ...

    async def read(self, from_index: int) -> LogRead:
        """Everything from an index on; raises `MetadataCorrupt`."""
        ...

    async def write_snapshot(self, snapshot: Snapshot) -> None:
        """Replaces an older one, and lets entries well before it be trimmed."""
        ...

    def watch(self, callback: Callable[[Change], None]) -> None:
        """Call `callback` on the loop some time after each change by another handle.

        Changes before this call, and those that this handle makes itself, need not be reported.
        The watch outlasts a lost session; it ends with `close`.
        """
        ...

    def watch_device(self, on_failure: Callable[[], object]) -> None:
        """Calls `on_failure` when a write or sync of this store's files fails, perhaps in a thread.

        That is before the store's own call ends. A lack of space is no failure of the device.
        """
        ...

    async def register_broker(self, broker_id: int, incarnation_id: bytes) -> None:
        """Held until `close` or death of the process; raises `BrokerIdInUse`."""
        ...

    async def live_brokers(self) -> Mapping[int, bytes]:
        """Incarnation ids of the registered brokers that are alive."""
        ...

    async def controller(self) -> ControllerTerm:
        """Return the current term, never an older one than an earlier call of this handle."""
        ...

    async def elect(self) -> ControllerTerm:
        """Take a new term for this registered broker, unless another live broker holds the term.

        Returns the term in force afterwards, which may be another broker's.
        """
        ...

    async def close(self) -> None:
        """Gives up the registration. Twice is allowed."""
        ...
