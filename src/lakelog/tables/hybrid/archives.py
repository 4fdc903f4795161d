"""The table of a topic, loaded once for a plan: its snapshot and the extents of the archive.

Ranges are cut at the end of the table. The files that hold given offsets are planned by the bounds
in the table's manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from lakelog.tables.archive.location import TableLocation, find_locations
from lakelog.tables.iceberg.address import TableAddress, TableReplacedError
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import ArchiveUnreadableError, LogDivergedError
from lakelog.tables.topic.offsets import (
    Divergence,
    OffsetRange,
    StreamOffset,
    TopicPartition,
    find_divergences,
)

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

    from lakelog.tables.archive.progress import Extent, Progress


_WAY_OUT = "Set the option archive=none to read the log only"


@dataclass(frozen=True, slots=True)
class TopicArchive:
    """One version of a topic's table. Snapshot and progress are of the same metadata."""

    topic: str
    topic_id: str
    address: TableAddress
    table: Table
    progress: Progress

    @property
    def dead_letters(self) -> int:
        """Archived offsets that are in the table of dead letters instead."""
        return sum(count.dead_letters for count in self.progress.refused.values())

    @property
    def skipped_records(self) -> int:
        """Archived offsets that are in no table, because they cannot be rows."""
        return sum(count.skipped for count in self.progress.refused.values())

    def extent(self, partition: int) -> Extent | None:
        """Return the offsets of a partition that the table holds; `None` if it holds none."""
        extent = self.progress.extents.get(partition)
        return extent if extent is not None and extent.start < extent.end else None


def open_archives(client: TopicClient, topics: Iterable[str]) -> dict[str, TopicArchive]:
    """Load the newest version of the tables of all the topics that have one, and `table.enable`.

    Raises `ArchiveUnreadableError` if a table that has archived offsets cannot be read, and
    `KafkaError`.
    """
    return open_locations(client, find_locations(client, topics))


def open_locations(
    client: TopicClient, places: Mapping[str, TableLocation]
) -> dict[str, TopicArchive]:
    """Load the newest version of the tables at these places. Raises as `open_archives`."""
    archives = {}
    for topic, table in places.items():
        topic_id = client.describe([topic])[topic].topic_id
        archive = _open(table, topic_id)
        if archive is not None:
            archives[topic] = archive
    return archives


def check_log(client: TopicClient, archive: TopicArchive, partitions: Iterable[int]) -> None:
    """Check that the log continues the table at the boundary.

    Raises `LogDivergedError` if the log lost archived records (KIP-320): the records beyond the
    boundary would not be those after the last archived one.
    """
    topic, progress = archive.topic, archive.progress
    epochs = {p: e for p, e in progress.leader_epochs.items() if p in set(partitions)}
    ends = {p: progress.ends[p] for p in epochs}
    point = StreamOffset({topic: ends}, {topic: archive.topic_id}, {topic: epochs})
    diverged: list[Divergence] = find_divergences(client, point)
    if diverged:
        raise LogDivergedError(
            f"{'; '.join(map(str, diverged))}. Run lakelog table sync {topic} --skip-lost to "
            f"settle this in the table. {_WAY_OUT}"
        )


def covered(archive: TopicArchive, key: TopicPartition, start: int, end: int) -> bool:
    """Return whether the table holds all offsets from `start` up to, not including, `end`."""
    extent = archive.extent(key[1])
    return extent is not None and extent.start <= start and end <= extent.end


def _open(table: TableLocation, topic_id: str) -> TopicArchive | None:
    """Return the archive, or `None` if nothing has been archived yet."""
    try:
        address = table.address
    except ValueError as error:
        raise ArchiveUnreadableError(f"topic {table.topic!r}: {error}. {_WAY_OUT}") from error
    has_archived = any(table.published.values())
    if not has_archived and not address.exists():
        return None
    archive = reload(table.topic, topic_id, address)
    behind = sorted(
        p for p, end in table.published.items() if archive.progress.ends.get(p, 0) < end
    )
    if behind:
        raise ArchiveUnreadableError(
            f"the table {'.'.join(address.identifier)} lacks offsets of {table.topic}-{behind[0]} "
            "that were archived: it was replaced or rolled back, or the topic's keys table.* name "
            f"another table. {_WAY_OUT}"
        )
    return archive


def reload(topic: str, topic_id: str, address: TableAddress) -> TopicArchive:
    """Load the newest version of a table. Raises `ArchiveUnreadableError`."""
    from pyiceberg.exceptions import NoSuchTableError
    from sqlalchemy.exc import SQLAlchemyError

    from lakelog.tables.archive.history import ProgressMismatchError, agreed_progress
    from lakelog.tables.archive.progress import ProgressFormatError
    from lakelog.tables.iceberg.catalog import CatalogLockedError

    name = ".".join(address.identifier)
    try:
        table = address.load()
        progress = agreed_progress(table, topic_id)
    except (TableReplacedError, NoSuchTableError):
        raise ArchiveUnreadableError(
            f"the table {name} of topic {topic!r} was dropped. {_WAY_OUT}"
        ) from None
    except (ProgressMismatchError, ProgressFormatError) as error:
        raise ArchiveUnreadableError(f"topic {topic!r}: {error}. {_WAY_OUT}") from None
    except CatalogLockedError as error:
        raise ArchiveUnreadableError(f"topic {topic!r}: {error}. {_WAY_OUT}") from error
    except (OSError, SQLAlchemyError) as error:
        raise ArchiveUnreadableError(
            f"the table {name} of topic {topic!r} cannot be read here ({_first_line(error)}). "
            "Executors and driver need access to its catalog and its files. "
            f"{_WAY_OUT}"
        ) from error
    return TopicArchive(topic, topic_id, address, table, progress)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


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
