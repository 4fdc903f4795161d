"""Cuts ranges of offsets at the boundary of a topic's table. No I/O but through its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.hybrid.files import ANY_TIME, ArchivedFile, Times, files_of
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.ranges import OffsetRange

_TASK_BYTES = 128 << 20
"""About how many bytes of files one task reads, if the query does not limit its tasks."""


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """A range for one task.

    address: the topic's table, or `None`. files: the files with archived rows of the range; a range
    of the log has none. archived: whether the table holds the range.
    """

    offsets: OffsetRange
    address: TableAddress | None = None
    files: tuple[ArchivedFile, ...] = ()
    archived: bool = False

    def __str__(self) -> str:
        return str(self.offsets)


def plan_ranges(
    ranges: Iterable[OffsetRange], archives: Mapping[str, TopicArchive], times: Times = ANY_TIME
) -> list[PlannedRange]:
    """Return the ranges, cut at the boundaries between tables and logs.

    The offsets of a table are cut further where its files begin: a task reads about 128 MiB. Raises
    `ArchiveUnreadableError`.
    """
    planned: list[PlannedRange] = []
    by_topic: dict[str, list[OffsetRange]] = {}
    for part in ranges:
        by_topic.setdefault(part.topic, []).append(part)
    for topic, parts in by_topic.items():
        archive = archives.get(topic)
        if archive is None:
            planned += [PlannedRange(part) for part in parts]
            continue
        old, new = split(parts, archive)
        files = files_of(archive, old, times)
        for part in old:
            planned += _pieces(part, archive, [file for file in files if file.may_hold(part)])
        planned += [PlannedRange(part, archive.address) for part in new]
    before = sum(part.size for parts in by_topic.values() for part in parts)
    assert sum(piece.offsets.size for piece in planned) == before, "each offset is planned once"
    return sorted(planned, key=lambda piece: (piece.offsets.topic, piece.offsets.partition))


def split(
    ranges: Iterable[OffsetRange], archive: TopicArchive
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Return the parts of the ranges that the table holds, and the parts for the log.

    Offsets before the first archived one are for the log, too: they were not archived.
    """
    old: list[OffsetRange] = []
    new: list[OffsetRange] = []
    for part in ranges:
        extent = archive.extent(part.partition)
        first = part.end if extent is None else min(max(part.start, extent.start), part.end)
        last = part.end if extent is None else min(max(extent.end, first), part.end)
        new += _part(part, part.start, first)
        old += _part(part, first, last)
        new += _part(part, last, part.end)
    return old, new


def _part(whole: OffsetRange, start: int, end: int) -> list[OffsetRange]:
    return [replace(whole, start=start, end=end)] if start < end else []


def _pieces(
    whole: OffsetRange, archive: TopicArchive, files: Sequence[ArchivedFile]
) -> list[PlannedRange]:
    """Cut an archived range where a file begins, whenever a task has enough bytes."""
    cuts, taken = [whole.start], 0
    for file in files:
        if taken >= _TASK_BYTES and file.offsets[0] > cuts[-1]:
            cuts.append(file.offsets[0])
            taken = 0
        taken += file.size
    pieces = []
    for start, end in zip(cuts, [*cuts[1:], whole.end], strict=True):
        part = replace(whole, start=start, end=end)
        held = tuple(file for file in files if file.may_hold(part))
        pieces.append(PlannedRange(part, archive.address, held, archived=True))
    return pieces
