"""How far a topic is archived, and what that allows a batch to do. No I/O.

The progress is a table property, `lakelog.sync.<topic id>`, because properties change in the same
transaction as the table's files. Each commit writes it into its snapshot's summary as well, under
the same name: properties do not roll back with snapshots, so the two tell a table that was rolled
back (`history.py`). Being keyed by the topic's id, it never speaks of another topic of the same
name. From the first commit on it names every partition of the topic, empty ones included: a
partition that it does not name is one that was added later.

The text is `{"version": 2, "partitions": {"0": [start, end, leader epoch]}, "query_id": "...",
"batch": n}`. Version 1 had `"ends": {"0": end}` instead; its starts and epochs are unknown (-1).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from lakelog.tables.topic.ranges import OffsetRange

_PREFIX = "lakelog.sync."
_VERSION = 2
UNKNOWN = -1


class ProgressConflictError(Exception):
    """A batch neither follows the table's progress nor is contained in it."""


class ProgressFormatError(Exception):
    """The progress that a table holds cannot be read."""


class Standing(Enum):
    """Where a batch stands to the progress that the table holds."""

    NEXT = "next"
    """It begins exactly where the table ends: append it."""
    BEHIND = "behind"
    """The table holds all of it already: drop it."""


class Extent(NamedTuple):
    """Offsets of one partition from `start` up to, not including, `end`.

    `leader_epoch` belongs to `end`: no record below it is of a later epoch. -1 stands for what an
    earlier version did not write down.
    """

    start: int
    end: int
    leader_epoch: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class Progress:
    """What of each partition is in the table."""

    extents: Mapping[int, Extent] = field(default_factory=dict)
    query_id: str = ""
    batch: int = -1

    @property
    def ends(self) -> dict[int, int]:
        """The first offset of each partition that is not archived."""
        return {partition: extent.end for partition, extent in sorted(self.extents.items())}

    @property
    def leader_epochs(self) -> dict[int, int]:
        """The leader epochs of the ends, where they are known."""
        return {
            partition: extent.leader_epoch
            for partition, extent in sorted(self.extents.items())
            if extent.leader_epoch != UNKNOWN
        }

    def to_text(self) -> str:
        partitions = {str(partition): extent for partition, extent in sorted(self.extents.items())}
        value = {"version": _VERSION, "partitions": partitions}
        return json.dumps({**value, "query_id": self.query_id, "batch": self.batch})

    @classmethod
    def from_text(cls, text: str) -> Progress:
        """Raises `ProgressFormatError`."""
        try:
            value = json.loads(text)
            version = value.get("version", 1)
            if version > _VERSION:
                raise ProgressFormatError(
                    f"the table's progress has version {version}, and this lakelog reads up to "
                    f"{_VERSION}: upgrade lakelog"
                )
            return cls(_extents(value), str(value["query_id"]), int(value["batch"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ProgressFormatError(
                f"the table's progress cannot be read ({type(error).__name__}: {error}): {text!r}. "
                "Restore the property, or archive into a table of another name"
            ) from None


def _extents(value: Any) -> dict[int, Extent]:
    if "ends" in value:
        return {int(p): Extent(UNKNOWN, int(end)) for p, end in value["ends"].items()}
    extents = {}
    for partition, (start, end, leader_epoch) in value["partitions"].items():
        extents[int(partition)] = Extent(int(start), int(end), int(leader_epoch))
    return extents


def property_name(topic_id: str) -> str:
    return _PREFIX + topic_id


def archived_topic_ids(properties: Mapping[str, str]) -> set[str]:
    """The ids of the topics that a table holds records of."""
    return {name.removeprefix(_PREFIX) for name in properties if name.startswith(_PREFIX)}


def read_progress(properties: Mapping[str, str], topic_id: str) -> Progress:
    """Of a table's properties or of a snapshot's summary. Raises `ProgressFormatError`."""
    text = properties.get(property_name(topic_id))
    return Progress() if text is None else Progress.from_text(text)


def merge_ranges(ranges: Iterable[OffsetRange]) -> dict[int, Extent]:
    """The pieces of a batch as one extent for each partition.

    Raises `ProgressConflictError` when the pieces of a partition do not join.
    """
    merged: dict[int, Extent] = {}
    for piece in sorted(ranges, key=lambda each: (each.partition, each.start)):
        before = merged.get(piece.partition)
        if before is not None and piece.start != before.end:
            raise ProgressConflictError(
                f"{piece} does not join the piece that ends at {before.end}"
            )
        start = piece.start if before is None else before.start
        merged[piece.partition] = Extent(start, piece.end, piece.leader_epoch)
    return merged


def standing(progress: Progress, batch: Mapping[int, Extent]) -> Standing:
    """Raises `ProgressConflictError` when the batch may be neither appended nor dropped.

    A partition that the table does not know yet may begin anywhere.
    """
    known = {p: progress.extents[p].end for p in batch if p in progress.extents}
    if all(batch[p].start == end for p, end in known.items()):
        return Standing.NEXT
    if len(known) == len(batch) and all(extent.end <= known[p] for p, extent in batch.items()):
        return Standing.BEHIND
    differing = ", ".join(
        f"partition {p}: the table ends at {end}, the batch is [{batch[p].start}, {batch[p].end})"
        for p, end in sorted(known.items())
        if batch[p].start != end
    )
    raise ProgressConflictError(f"another archive job of this topic is at work ({differing})")


def advance(
    progress: Progress, batch: Mapping[int, Extent], *, query_id: str, number: int
) -> Progress:
    """The progress after `batch`, whose extents follow those that the table has."""
    extents = dict(progress.extents)
    for partition, extent in batch.items():
        known = extents.get(partition, extent)
        extents[partition] = Extent(known.start, extent.end, extent.leader_epoch)
    return Progress(extents, query_id, number)
