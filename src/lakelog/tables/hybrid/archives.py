"""The table of a topic, loaded once for a plan: its snapshot and the extents of the archive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelog.tables.archive.location import TableLocation, find_locations
from lakelog.tables.iceberg.address import TableAddress, TableReplacedError
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import ArchiveUnreadableError, LogDivergedError
from lakelog.tables.topic.offsets import Divergence, StreamOffset, TopicPartition, find_divergences

if TYPE_CHECKING:
    from pyiceberg.table import Table

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


def reload(archive_of: str, topic_id: str, address: TableAddress) -> TopicArchive:
    """Load the newest version of a table again. Raises `ArchiveUnreadableError`."""
    return _loaded(archive_of, topic_id, address)


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
    archive = _loaded(table.topic, topic_id, address)
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


def _loaded(topic: str, topic_id: str, address: TableAddress) -> TopicArchive:
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
