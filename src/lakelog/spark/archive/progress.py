"""How far a topic is archived, and what that allows a batch to do. No I/O.

The progress is a table property, `lakelog.sync.<topic id>`, because properties change in the same
transaction as the table's files. Being keyed by the topic's id, it never speaks of another topic
of the same name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from lakelog.spark.planning import OffsetRange

_PREFIX = "lakelog.sync."


class ProgressConflictError(Exception):
    """A batch neither follows the table's progress nor is contained in it."""


class Standing(Enum):
    """Where a batch stands to the progress that the table holds."""

    NEXT = "next"
    """It begins exactly where the table ends: append it."""
    BEHIND = "behind"
    """The table holds all of it already: drop it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """`ends` maps each partition to the first offset that is not archived."""

    ends: Mapping[int, int] = field(default_factory=dict)
    query_id: str = ""
    batch: int = -1

    def to_text(self) -> str:
        ends = {str(partition): end for partition, end in sorted(self.ends.items())}
        return json.dumps({"ends": ends, "query_id": self.query_id, "batch": self.batch})

    @classmethod
    def from_text(cls, text: str) -> Progress:
        value = json.loads(text)
        ends = {int(partition): int(end) for partition, end in value["ends"].items()}
        return cls(ends, str(value["query_id"]), int(value["batch"]))


def property_name(topic_id: str) -> str:
    return _PREFIX + topic_id


def archived_topic_ids(properties: Mapping[str, str]) -> set[str]:
    """The ids of the topics that a table holds records of."""
    return {name.removeprefix(_PREFIX) for name in properties if name.startswith(_PREFIX)}


def read_progress(properties: Mapping[str, str], topic_id: str) -> Progress:
    text = properties.get(property_name(topic_id))
    return Progress() if text is None else Progress.from_text(text)


def merge_ranges(ranges: Iterable[OffsetRange]) -> dict[int, tuple[int, int]]:
    """The pieces of a batch as one (start, end) for each partition.

    Raises `ProgressConflictError` when the pieces of a partition do not join.
    """
    merged: dict[int, tuple[int, int]] = {}
    for piece in sorted(ranges, key=lambda each: (each.partition, each.start)):
        start, end = merged.get(piece.partition, (piece.start, piece.start))
        if piece.start != end:
            raise ProgressConflictError(f"{piece} does not join the piece that ends at {end}")
        merged[piece.partition] = (start, piece.end)
    return merged


def standing(progress: Progress, batch: Mapping[int, tuple[int, int]]) -> Standing:
    """Raises `ProgressConflictError` when the batch may be neither appended nor dropped.

    A partition that the table does not know yet may begin anywhere.
    """
    known = {p: progress.ends[p] for p in batch if p in progress.ends}
    if all(batch[p][0] == end for p, end in known.items()):
        return Standing.NEXT
    if len(known) == len(batch) and all(end <= known[p] for p, (_, end) in batch.items()):
        return Standing.BEHIND
    differing = ", ".join(
        f"partition {p}: the table ends at {end}, the batch is [{batch[p][0]}, {batch[p][1]})"
        for p, end in sorted(known.items())
        if batch[p][0] != end
    )
    raise ProgressConflictError(f"another archive job of this topic is at work ({differing})")


def advance(
    progress: Progress, batch: Mapping[int, tuple[int, int]], *, query_id: str, number: int
) -> Progress:
    ends = {**progress.ends, **{partition: end for partition, (_, end) in batch.items()}}
    return Progress(ends, query_id, number)
