"""Which files of a snapshot hold given offsets: planned by the bounds in the table's manifests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.topic.errors import ArchiveUnreadableError
from lakelog.tables.topic.ranges import OffsetRange

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
