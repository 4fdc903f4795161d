"""The contract of every metadata store; one suite of tests runs on all of them.

The log is a sequence of entries with indexes 0, 1, 2, ...; each holds one batch, whole or not at
all. `append` is compare-and-append: the caller names the index of the new entry, and the controller
epoch under which the batch was decided. Exactly one writer can win an index, and a writer whose
epoch was superseded can win none.

An outcome may be unknown, for example after a session was lost during the call. Each batch
therefore carries the id and serial of its writer. Repeat the same append until it is done or lost,
then call `position_of`: if a lost batch has a position, an earlier attempt succeeded.

A watcher is called after every change that another handle made: entries, live brokers, the
controller's term. A call may be spurious, and one call may stand for several changes, but no change
remains unreported, not even the death of a killed process.

Not in the contract: when a reader sees an entry that another process has written, and how long
entries before the newest snapshot are kept.

`Space` is the disk space that the metadata store shares with the logs of its broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import NamedTuple, Protocol


class Space(Protocol):
    """The space that the store shares with the logs of this broker."""

    def check_reserve(self) -> None:
        """Raise `KafkaError` while the remaining space is reserved for changes that free space."""
        ...

    def note_full(self) -> None:
        """Report a lack of space for a change."""
        ...

    async def free_reserve(self) -> bool:
        """Free the reserved space; return whether there is space now."""
        ...


class UnreservedSpace:
    """A `Space` without a reserve: there is space until a write fails."""

    def check_reserve(self) -> None:
        pass

    def note_full(self) -> None:
        pass

    async def free_reserve(self) -> bool:
        return False


BATCH_BYTES_MAX = 900_000
"""Limit for the payload of one entry in bytes; with the rest of the call it stays below ZooKeeper's
1 MiB."""
ENTRIES_KEPT = 100
"""Entries that stay in the store before the newest snapshot: a reader that is less behind need not
load it."""


class MetadataBatch(NamedTuple):
    """One entry to append.

    `payload` comes from `encode_records`; `serial` rises with each batch of a writer.
    """

    writer_id: bytes
    serial: int
    controller_epoch: int
    payload: bytes


class EntryOutcome(Enum):
    """The result of an append."""

    DONE = "done"
    LOST = "lost"
    """Definitely not done: another entry has the index."""
    FENCED = "fenced"
    """Definitely not done: a newer controller was elected."""
    UNKNOWN = "unknown"


class AppendOutcome(NamedTuple):
    """The result of an append, and the index of the next entry (-1 when unknown)."""

    outcome: EntryOutcome
    end: int


class Snapshot(NamedTuple):
    """Records of the image after all entries below `end`; may be larger than a batch."""

    end: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch in the log."""

    index: int
    payload: bytes


class LogRead(NamedTuple):
    """Consecutive entries from the requested index, or from the end of `snapshot` if there is one.

    There is a snapshot, if one was written, for reads from 0, and for reads from an index whose
    entry was trimmed.
    """

    snapshot: Snapshot | None
    entries: tuple[Entry, ...]


class ControllerTerm(NamedTuple):
    """The last elected controller and its epoch, which only rises.

    Before the first election it is broker -1 at epoch 0, and after a resignation broker -1.
    """

    broker_id: int
    epoch: int
    incarnation_id: bytes = b""
    """The process that took the term; empty if a store of an older version recorded none."""

    def is_held(self, live: Mapping[int, bytes]) -> bool:
        """Return whether the process that took the term is alive.

        A broker that has restarted does not hold the term of its former process.
        """
        process = live.get(self.broker_id)
        return process is not None and self.incarnation_id in (b"", process)


class Change(Flag):
    """The parts of the store that may have changed."""

    ENTRIES = auto()
    BROKERS = auto()
    """A broker registered, closed, died or stopped sending heartbeats."""
    TERM = auto()


NO_CHANGE = Change(0)


class LogState(NamedTuple):
    """The end of a log, which a copy in another store continues.

    The marks in the data folders of brokers (`chain.py`) fit the copy: log id and chain stay.
    """

    log_id: bytes
    end: int
    chain: bytes
    controller_epoch: int


class MetadataStore(Protocol):
    """One handle of a broker on the metadata log. Every call completes on the event loop.

    Every call may raise `MetadataUnavailable` (not carried out, may be repeated) and
    `MetadataOffline` (the device failed; restart).
    """

    @property
    def entry_bytes_max(self) -> int:
        """The limit for the payload of an entry in bytes, at most `BATCH_BYTES_MAX`."""
        ...

    async def open(self, *, create: bool) -> None:
        """Open the log; `create` it only for a data folder without logs.

        Raises `MetadataMissing` when there is no log and `create` is false, `MetadataCorrupt`, and
        `MetadataUnsupported`.
        """
        ...

    async def append(self, batch: MetadataBatch, expected_end: int) -> AppendOutcome:
        """Append one entry at index `expected_end`, durably once done.

        The payload has at most `entry_bytes_max` bytes.
        """
        ...

    async def position_of(self, writer_id: bytes, serial: int) -> int | None:
        """Return the index of the writer's newest stored batch if it has that serial."""
        ...

    async def read(self, from_index: int) -> LogRead:
        """Return all entries from an index on. Raises `MetadataCorrupt`."""
        ...

    async def write_snapshot(self, snapshot: Snapshot) -> None:
        """Replace an older snapshot and trim entries well before the new one."""
        ...

    def watch(self, callback: Callable[[Change], None]) -> None:
        """Call `callback` on the loop some time after each change by another handle.

        Changes before this call, and changes by this handle, need not be reported.
        The watch outlasts a lost session; it ends with `close`.
        """
        ...

    def watch_device(self, on_failure: Callable[[], object]) -> None:
        """Call `on_failure` when a write or sync of this store's files fails, perhaps in a thread.

        The callback precedes the end of the store's own call. A lack of space is no failure of the
        device.
        """
        ...

    async def register_broker(self, broker_id: int, incarnation_id: bytes) -> None:
        """Register this process as a live broker, until `close` or its death.

        Raises `BrokerIdInUse` while another process is registered under the id.
        """
        ...

    @property
    def heartbeat_s(self) -> float:
        """When the newest heartbeat was sent that other brokers can see, on the monotonic clock.

        They count this broker as dead no earlier than a session timeout after it. Infinite if they
        need no heartbeats.
        """
        ...

    async def live_brokers(self) -> Mapping[int, bytes]:
        """Return the incarnation ids of the registered brokers that are alive, by broker id."""
        ...

    async def beating_brokers(self, within_s: float) -> Mapping[int, bytes]:
        """Return the live brokers of which this handle found a heartbeat in the last `within_s`.

        Brokers that need no heartbeats are among them. The heartbeat may be older by the time
        between two of them, in which this handle did not look.
        """
        ...

    async def report_dead(self, broker_id: int, incarnation_id: bytes) -> None:
        """Remove this process from the live brokers now, if the store still counts it.

        The caller has seen that the process ended, as it refuses connections. Without the report
        the store notices after its session timeout. A process that is alive after all registers
        again by itself.
        """
        ...

    async def controller(self) -> ControllerTerm:
        """Return the current term, never an older one than an earlier call of this handle."""
        ...

    async def elect(self, *, past: int = -1) -> ControllerTerm:
        """Take a new term for this registered process, unless a live process holds the term.

        past: the epoch of a term that is replaced although its holder is alive.

        Returns the term in force afterwards, which may be another broker's. A process that holds
        the term itself gets a new one.
        """
        ...

    async def resign(self, epoch: int) -> ControllerTerm:
        """End the term of this epoch, if it is in force; broker -1 holds the next one.

        Returns the term in force afterwards.
        """
        ...

    async def close(self) -> None:
        """End the registration and release everything. A second call does nothing."""
        ...


class MovableStore(MetadataStore, Protocol):
    """A store whose log may be copied to and from another store, while no broker uses it."""

    async def state(self) -> LogState:
        """Return the current end of the log."""
        ...

    async def load(self, state: LogState, payload: bytes) -> None:
        """Create a log that continues `state`, in place of `open`; call `close` after it.

        payload: the records of the image after all entries, of any size. Raises
        `MetadataNotEmpty` if there is a log, and writes it whole or not at all.
        """
        ...
