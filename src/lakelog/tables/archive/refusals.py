"""Records that a table cannot have, and how an archive treats them (`table.errors`).

A record is refused if its timestamp is outside the years 1 to 9999 and the table has no column for
such numbers. A batch whose bytes are damaged is refused as a whole, because the limits of its
records are unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from lakelog.tables.topic.errors import BadRecordError, OptionError

KEY = "table.errors"
"""The topic key that selects an `OnBadRecord`."""

BAD_TIMESTAMP = "the timestamp "
"""How the reason of a record with an impossible timestamp begins."""


class OnBadRecord(Enum):
    """How an archive treats a record that its table cannot have.

    STOP: the job ends with an error. DEAD_LETTER: the record goes to a second table. SKIP: the
    table's progress counts it.
    """

    STOP = "stop"
    DEAD_LETTER = "dead-letter"
    SKIP = "skip"

    @classmethod
    def named(cls, name: str) -> OnBadRecord:
        """Return the member of this name. Raises `OptionError`."""
        try:
            return cls(name)
        except ValueError:
            allowed = ", ".join(choice.value for choice in cls)
            raise OptionError(f"{KEY} is {name!r}: expected one of {allowed}") from None


class RefusedRecord(NamedTuple):
    """Offsets `offset` to `offset_last`, inclusive, which are one record or one damaged batch.

    raw: a record batch (magic 2): of this record alone, or the damaged bytes as they are stored;
    empty if the broker refuses to send them.
    """

    topic: str
    partition: int
    offset: int
    offset_last: int
    reason: str
    raw: bytes
    is_damaged: bool

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}: {self.reason}"


class RefusedCount(NamedTuple):
    """Offsets of one partition that are not in the table, within its archived range."""

    dead_letters: int = 0
    skipped: int = 0

    def plus(self, other: RefusedCount) -> RefusedCount:
        """Return the sums."""
        return RefusedCount(self.dead_letters + other.dead_letters, self.skipped + other.skipped)


class Span(NamedTuple):
    """Offsets of one partition from `start` up to, not including, `end`."""

    partition: int
    start: int
    end: int


NAMED_MAX = 100
"""Refused ranges that a task or a commit names; the counts include all others."""


class Refusals:
    """The refused records of one task: their number per partition, and the first ranges."""

    def __init__(self) -> None:
        self.counts: dict[int, RefusedCount] = {}
        self.named: list[Span] = []

    def add(self, refused: RefusedRecord, one: OnBadRecord) -> None:
        """Count a refused record that goes to the dead letters, or is skipped."""
        size = refused.offset_last + 1 - refused.offset
        assert size > 0, "a refused range is not empty"
        is_dead_letter = one is OnBadRecord.DEAD_LETTER
        count = RefusedCount(size, 0) if is_dead_letter else RefusedCount(0, size)
        partition = refused.partition
        self.counts[partition] = self.counts.get(partition, RefusedCount()).plus(count)
        last = self.named[-1] if self.named else None
        end = refused.offset_last + 1
        if last is not None and (last.partition, last.end) == (partition, refused.offset):
            self.named[-1] = last._replace(end=end)
        elif len(self.named) < NAMED_MAX:
            self.named.append(Span(partition, refused.offset, end))


Refuse = Callable[[RefusedRecord], None]
"""Decides about a refused record: raises an error, or returns to leave it out."""

_HINT = (
    f"Set the topic's key {KEY} to dead-letter or skip, or repeat with --errors, to archive the "
    "other records"
)
_NULLABLE = (
    "Repeat with --null-timestamps to archive such a timestamp as null, with its number in the "
    "column rawTimestamp. "
)


def stop(refused: RefusedRecord) -> None:
    """Raise `BadRecordError`, which names the record and the ways to go on."""
    raise BadRecordError(f"{refused}. {'' if refused.is_damaged else _NULLABLE}{_HINT}")
