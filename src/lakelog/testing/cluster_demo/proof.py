"""Compares the records in the topic with the acknowledged ones, and measures the outages.

The timeline has the faults and the longest times without an acknowledged write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


class Acknowledged(NamedTuple):
    """A record whose write was acknowledged: its place and its value, with the time in seconds.

    offset: `None` if the client does not know it, as after an error for the repetition of a batch
        that an earlier request has written.
    """

    partition: int
    offset: int | None
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
    missing = sum(record.value not in counts for record in acknowledged)
    misplaced = sum(
        record.value in counts and not _is_in_place(record, stored, places)
        for record in acknowledged
    )
    reordered = sum(
        int(later[1]) < int(earlier[1])
        for rows in stored.values()
        for earlier, later in pairwise(rows)
    )
    repeated = sum(count - 1 for count in counts.values())
    return Verdict(len(acknowledged), len(places), missing, misplaced, repeated, reordered)


def _is_in_place(
    record: Acknowledged,
    stored: Mapping[int, Sequence[tuple[int, bytes]]],
    places: Mapping[tuple[int, int], bytes],
) -> bool:
    if record.offset is None:
        return any(value == record.value for _, value in stored.get(record.partition, ()))
    return places.get((record.partition, record.offset)) == record.value


class Gap(NamedTuple):
    """A time without an acknowledged write in one partition, in seconds from the start."""

    partition: int
    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Seconds between the two acknowledgements."""
        return self.end_s - self.begin_s


def longest_gap(
    acknowledged: Iterable[tuple[int, float]], begin_s: float, end_s: float
) -> Gap | None:
    """Return the longest gap of any partition that overlaps the times from `begin_s` to `end_s`.

    acknowledged: partition and time of each acknowledged write, in the order of time. A gap that
    has not ended counts as well. None if no partition has a write.
    """
    before: dict[int, float] = {}
    gaps = []
    for partition, moment in acknowledged:
        if partition in before and moment >= begin_s and before[partition] <= end_s:
            gaps.append(Gap(partition, before[partition], moment))
        before[partition] = moment
    gaps += [Gap(partition, last, end_s) for partition, last in before.items() if last < end_s]
    return max(gaps, key=lambda gap: gap.length_s, default=None)


class Fault(NamedTuple):
    """An injected fault with its text, and the time until all replicas were in sync again."""

    text: str
    begin_s: float
    end_s: float


def table(faults: Sequence[Fault], gaps: Sequence[Gap | None]) -> str:
    """Return one line per fault, with the longest gap that it caused."""
    assert len(faults) == len(gaps)
    width = max(len(fault.text) for fault in faults)
    lines = [f"{'fault':<{width}}  longest gap of acknowledged writes"]
    lines.append("─" * len(lines[0]))
    for fault, gap in zip(faults, gaps, strict=True):
        shown = "no write" if gap is None else f"{gap.length_s:.2f} s (partition {gap.partition})"
        lines.append(f"{fault.text:<{width}}  {shown}")
    return "\n".join(lines)
