"""Where ranges are cut at the end of a table, and which files of a snapshot hold given offsets.

Files are planned by the bounds in the table's manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.errors import ArchiveUnreadableError
from lakelog.tables.topic.offsets import OffsetRange

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask


PARTITION_ID, OFFSET_ID = 2, 3
"""The ids of these columns; see `iceberg/columns.py`."""
ALL_NUMBERS = (-1, 1 << 62)


class Times(NamedTuple):
    """Timestamps of wanted records, in microseconds; both ends inclusive, `None` is no limit."""

    first_us: int | None = None
    last_us: int | None = None


ANY_TIME = Times()


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A data file of a snapshot.

    offsets: the least and the greatest offset, over all its partitions. deletes: files with the
    positions of deleted rows. size: in bytes.
    """

    path: str
    size: int
    partitions: tuple[int, int]
    offsets: tuple[int, int]
    deletes: tuple[str, ...]

    def may_hold(self, offset_range: OffsetRange) -> bool:
        """Return whether the file may have rows of the range."""
        return (
            self.partitions[0] <= offset_range.partition <= self.partitions[1]
            and self.offsets[0] < offset_range.end
            and self.offsets[1] >= offset_range.start
        )


def files_of(
    archive: TopicArchive, ranges: Iterable[OffsetRange], times: Times = ANY_TIME
) -> list[ArchivedFile]:
    """Return the files of the archive's snapshot that may hold rows of the ranges.

    Files are in the order of their least offsets. Raises `ArchiveUnreadableError` if manifests
    cannot be read.
    """
    parts = list(ranges)
    if not parts or archive.table.current_snapshot() is None:
        return []
    from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan

    first, last = min(part.start for part in parts), max(part.end for part in parts)
    rows = And(GreaterThanOrEqual("offset", first), LessThan("offset", last), *_during(times))
    try:
        # The snapshot of the loaded metadata: later commits do not change the plan.
        tasks = list(archive.table.scan(row_filter=rows).plan_files())
    except OSError as error:
        raise ArchiveUnreadableError(
            f"a manifest of the table of {archive.topic!r} cannot be read: {error}"
        ) from error
    files = [archived_file(task) for task in tasks]
    return sorted(
        (file for file in files if any(file.may_hold(part) for part in parts)),
        key=lambda file: (file.offsets, file.path),
    )


def _during(times: Times) -> list[object]:
    from datetime import UTC, datetime, timedelta

    from pyiceberg.expressions import GreaterThanOrEqual, IsNull, LessThanOrEqual, Or

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    terms: list[object] = []
    for limit, compare in ((times.first_us, GreaterThanOrEqual), (times.last_us, LessThanOrEqual)):
        if limit is not None:
            at = (epoch + timedelta(microseconds=limit)).isoformat()
            terms.append(Or(compare("timestamp", at), IsNull("timestamp")))
    return terms


def archived_file(task: FileScanTask) -> ArchivedFile:
    """Return a data file of a snapshot with its bounds and its delete files."""
    file = task.file
    return ArchivedFile(
        file.file_path,
        file.file_size_in_bytes,
        _bounds(task, PARTITION_ID),
        _bounds(task, OFFSET_ID),
        tuple(sorted(delete_file.file_path for delete_file in task.delete_files)),
    )


def _bounds(task: FileScanTask, column: int) -> tuple[int, int]:
    """Return the bounds of an integer column; bounds that match all values if there are none."""
    lower = (task.file.lower_bounds or {}).get(column)
    upper = (task.file.upper_bounds or {}).get(column)
    if lower is None or upper is None:
        return ALL_NUMBERS
    # Iceberg spec, appendix D: int and long are stored as little-endian bytes.
    return (
        int.from_bytes(lower, "little", signed=True),
        int.from_bytes(upper, "little", signed=True),
    )


def groups_by_offsets(files: Sequence[ArchivedFile]) -> list[list[ArchivedFile]]:
    """Return the files in groups whose offsets overlap only within a group."""
    groups: list[list[ArchivedFile]] = []
    reached = -1
    for file in sorted(files, key=lambda item: item.offsets):
        if groups and file.offsets[0] <= reached:
            groups[-1].append(file)
        else:
            groups.append([file])
        reached = max(reached, file.offsets[1])
    return groups


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
