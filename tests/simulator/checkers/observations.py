"""The data of a history: values sent, the partitions that they are in, and transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

Place = tuple[str, int]
"""A partition: the topic's name and the partition's index."""


class Fate(Enum):
    """The state of a transaction as far as its producer knows."""

    OPEN = "open"
    COMMITTING = "committing"
    """The producer requested a commit; its outcome is unknown."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    """No commit was requested, and none will be."""


@dataclass(eq=False, slots=True)
class Transaction:
    """A transaction with its acknowledged values."""

    name: str
    fate: Fate = Fate.OPEN
    values: dict[bytes, Place] = field(default_factory=dict)
    """Acknowledged values, and the partition of each."""
    topic_partitions: set[Place] = field(default_factory=set)
    """Partitions that may have records of the transaction."""
    ends: Mapping[Place, int] = field(default_factory=dict)
    """Log end offsets when EndTxn was acknowledged: all of the transaction is below them."""
    torn: bool = False
    """Whether the end of a log was lost, without a broken promise, with a part of it."""

    @property
    def is_open_or_aborted(self) -> bool:
        return not self.torn and self.fate in (Fate.OPEN, Fate.ABORTED)

    @property
    def is_committed(self) -> bool:
        return not self.torn and self.fate is Fate.COMMITTED


@dataclass(slots=True)
class Sent:
    """One value that a producer sent; `once` if the producer is idempotent."""

    topic_partition: Place
    once: bool
    transaction: Transaction | None
    acked: int = -1
    """The offset in the acknowledgement; -1 without one."""
    seen: int = -1
    """The offset at which the value was acknowledged or read last; -1 if neither happened."""
    made_at: float = 0.0
    """The loop's time in seconds at which the batch was built."""
    number: int = 0
    """Rises in the order of sending."""
    producer_id: int = -1
    timestamp: int = 0
    """The record's, in milliseconds."""
    twice: bool = False
    """Whether a second copy is allowed because the broker may have forgotten the producer."""


class HiddenRange(NamedTuple):
    """Offsets from `first` to before `end`, unreadable if the batch at `base` is damaged."""

    first: int
    base: int
    end: int


@dataclass(slots=True)
class PartitionHistory:
    """What clients know of one partition, and what excuses missing records."""

    values: dict[int, bytes] = field(default_factory=dict)
    start: int = 0
    """Records below this offset may be missing: deleted, or old enough for retention."""
    trimmed: int = 0
    """A client received an acknowledgement that records below this offset are deleted."""
    end: int = 0
    compacted: bool = False
    may_drop_tombstone: Callable[[float], bool] = lambda made_at: False
    """Returns whether compaction may remove a tombstone that was sent at this time."""
    cuts: int = 0
    """How often the end of the log was lost."""
    hidden: list[HiddenRange] = field(default_factory=list)
    retention: Callable[[int], list[int]] | None = None
    """Returns the offsets below a log start offset that retention must have kept."""
    epochs: dict[int, int] = field(default_factory=dict)
    """The leader epoch of each batch that was read, by the batch's last offset."""
    has_times: bool = True
    """Whether records keep their clients' timestamps, and stay until a client deletes them."""

    def is_hidden(self, offset: int) -> bool:
        """Return whether a reader may receive CORRUPT_MESSAGE instead of the record."""
        return any(hidden.first <= offset < hidden.end for hidden in self.hidden)
