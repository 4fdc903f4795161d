"""The kinds of anomalies that the checker finds."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """A promise to clients that was broken."""

    LOST = "lost write"
    """A record was acknowledged, or received by a consumer, and no later reader receives it."""
    SKIPPED = "skipped read"
    """A consumer received records before and after a record of other consumers, but not it."""
    DUPLICATE = "duplicate write"
    INCONSISTENT = "inconsistent offset"
    """Two records had the same offset at different times or for different clients."""
    PHANTOM = "phantom write"
    """A record that no client sent, or not to this partition."""
    REORDERED = "reordered write"
    """The records of one producer are in another order than it sent them."""
    BACKWARDS = "backwards read"
    """A consumer received a smaller offset after a larger one, or one below its start."""
    ABORTED = "aborted read"
    """A consumer of committed records received a record of no committed operation."""
    EARLY = "early read"
    """A consumer of committed records received one before its producer called commit."""
    TORN = "torn transaction"
    REGRESSION = "commit regression"
    """A committed offset of a group went backwards."""
    AGAIN = "processed twice"
    MISSING = "not processed"
    """A group has passed a record, and no member has received or processed it."""
    ERROR = "impossible error"
    STALLED = "no progress"
    """After all faults had ended, a role had no success within the deadline."""
    UNAVAILABLE = "unavailable partition"
    """During a fault of a minority, a partition acknowledged nothing for too long."""
    HIDDEN = "hidden failure"
    """A surface showed health, and a partition acknowledged nothing for too long."""


class Anomaly(NamedTuple):
    """A broken promise, and where."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"
