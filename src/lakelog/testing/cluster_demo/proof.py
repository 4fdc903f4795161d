"""Compares the records in the topic with the acknowledged ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


class Acknowledged(NamedTuple):
    """A record whose write was acknowledged: its place and its value, with the time in seconds."""

    partition: int
    offset: int
    value: bytes
    moment_s: float


class Verdict(NamedTuple):
    """Numbers of records. `reordered` have a smaller number than an earlier record."""

    acknowledged: int
    stored: int
    missing: int
    misplaced: int
    repeated: int
    reordered: int

    @property
    def holds(self) -> bool:
        """Whether every acknowledged record is stored once, where and in the order promised."""
        return not (self.missing or self.misplaced or self.repeated or self.reordered)


def examine(
    acknowledged: Sequence[Acknowledged], stored: Mapping[int, Sequence[tuple[int, bytes]]]
) -> Verdict:
    """Return the verdict. `stored` are offset and value of all records, by partition.

    The value of a record is its number as text; a producer sends rising numbers to a partition.
    """
    places = {
        (partition, offset): value for partition, rows in stored.items() for offset, value in rows
    }
    counts = Counter(places.values())
    missing = sum(each.value not in counts for each in acknowledged)
    misplaced = sum(
        each.value in counts and places.get((each.partition, each.offset)) != each.value
        for each in acknowledged
    )
    reordered = sum(
        int(later[1]) < int(earlier[1])
        for rows in stored.values()
        for earlier, later in pairwise(rows)
    )
    repeated = sum(count - 1 for count in counts.values())
    return Verdict(len(acknowledged), len(places), missing, misplaced, repeated, reordered)
