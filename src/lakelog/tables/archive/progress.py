"""A job, how far it has archived its topic, and whether a batch may be appended. No I/O.

The progress is a table property, `lakelog.sync.<topic id>`, because properties change in the same
transaction as the table's files. Each commit writes it into its snapshot's summary as well, under
the same name. Properties do not roll back with snapshots, so a difference between the two reveals
a rollback (`history.py`). The key is the topic's id, so the progress never applies to another topic
of the same name. From the first commit on the progress contains every partition of the topic, also
empty partitions. A partition that it lacks was added to the topic later.

The text is `{"version": 2, "partitions": {"0": [start, end, leader epoch]}, "query_id": "...",
"batch": n}`. If records were refused (`refusals.py`), it has `"refused": {"0": [dead letters,
skipped]}` too, and `"rewinds": n` if archived offsets left the table again (`reconcile.py`): tables
that were derived from it before are then wrong. Version 1 had `"ends": {"0": end}` instead; its
starts and epochs are unknown (-1).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import pyarrow as pa

from lakelog.tables.archive.refusals import OnBadRecord, RefusedCount
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import ARROW_SCHEMA, with_null_timestamps
from lakelog.tables.registry.client import RegistryAddress
from lakelog.tables.registry.schemas import SubjectVersion
from lakelog.tables.topic.offsets import OffsetRange

_PREFIX = "lakelog.sync."
_VERSION = 2
UNKNOWN = -1


class ProgressConflictError(Exception):
    """A batch neither follows the table's progress nor is contained in it."""


class ForeignTableError(Exception):
    """The table holds the records of another topic."""


class ProgressFormatError(Exception):
    """The progress that a table holds cannot be read."""


class Standing(Enum):
    """The relation of a batch to the table's progress."""

    NEXT = "next"
    """The batch begins exactly where the table ends: append it."""
    BEHIND = "behind"
    """The table already holds the whole batch: drop it."""


class Extent(NamedTuple):
    """Offsets of one partition from `start` up to, not including, `end`.

    leader_epoch: no record below `end` has a later epoch. -1 (`UNKNOWN`) stands for a value that
    version 1 did not record.
    """

    start: int
    end: int
    leader_epoch: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class Progress:
    """The extent of each partition in the table, and the batch that was committed last.

    refused: how many offsets within the extents are not rows, by partition. rewinds: how often
    archived offsets have left the table.
    """

    extents: Mapping[int, Extent] = field(default_factory=dict)
    query_id: str = ""
    batch: int = -1
    refused: Mapping[int, RefusedCount] = field(default_factory=dict)
    rewinds: int = 0

    @property
    def ends(self) -> dict[int, int]:
        """The first offset of each partition that is not archived."""
        return {partition: extent.end for partition, extent in sorted(self.extents.items())}

    @property
    def leader_epochs(self) -> dict[int, int]:
        """The known leader epochs of the ends, by partition."""
        return {
            partition: extent.leader_epoch
            for partition, extent in sorted(self.extents.items())
            if extent.leader_epoch != UNKNOWN
        }

    def to_text(self) -> str:
        """Return the value of the table's property; see docs/spark.md.

        Partitions are sorted, so equal progress has equal text.
        """
        partitions = {str(partition): extent for partition, extent in sorted(self.extents.items())}
        value: dict[str, Any] = {"version": _VERSION, "partitions": partitions}
        if self.refused:
            value["refused"] = {str(p): count for p, count in sorted(self.refused.items())}
        if self.rewinds:
            value["rewinds"] = self.rewinds
        return json.dumps({**value, "query_id": self.query_id, "batch": self.batch})

    @classmethod
    def from_text(cls, text: str) -> Progress:
        """Parse the text of a property or a summary. Raises `ProgressFormatError`."""
        try:
            value = json.loads(text)
            version = value.get("version", 1)
            if version > _VERSION:
                raise ProgressFormatError(
                    f"the table's progress has version {version}, but this lakelog supports up to "
                    f"{_VERSION}: upgrade lakelog"
                )
            query_id, batch = str(value["query_id"]), int(value["batch"])
            rewinds = int(value.get("rewinds", 0))
            return cls(_extents(value), query_id, batch, _refused(value), rewinds)
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


def _refused(value: Any) -> dict[int, RefusedCount]:
    return {
        int(partition): RefusedCount(int(dead_letters), int(skipped))
        for partition, (dead_letters, skipped) in value.get("refused", {}).items()
    }


def property_name(topic_id: str) -> str:
    """Return the name of the table's property with the progress of a topic."""
    return _PREFIX + topic_id


def archived_topic_ids(properties: Mapping[str, str]) -> set[str]:
    """Return the ids of the topics whose records a table holds."""
    return {name.removeprefix(_PREFIX) for name in properties if name.startswith(_PREFIX)}


def check_owner(properties: Mapping[str, str], topic_id: str) -> None:
    """Raise `ForeignTableError` if another topic has committed to the table."""
    assert topic_id, "an empty id would fit every table"
    others = archived_topic_ids(properties) - {topic_id}
    if others:
        raise ForeignTableError(
            f"the table holds another topic's records (topic id {', '.join(sorted(others))}, not "
            f"{topic_id}), which were committed first: archive into a table of another name"
        )


def read_progress(properties: Mapping[str, str], topic_id: str) -> Progress:
    """Return the progress in a table's properties or a snapshot's summary.

    It is empty if the topic was never archived. Raises `ProgressFormatError`.
    """
    text = properties.get(property_name(topic_id))
    return Progress() if text is None else Progress.from_text(text)


def merge_ranges(ranges: Iterable[OffsetRange]) -> dict[int, Extent]:
    """Return the extent of each partition that the pieces of a batch cover together.

    Raises `ProgressConflictError` if the pieces of a partition leave a gap or overlap.
    """
    merged: dict[int, Extent] = {}
    for piece in sorted(ranges, key=lambda piece: (piece.partition, piece.start)):
        assert piece.start <= piece.end, piece
        before = merged.get(piece.partition)
        if before is not None and piece.start != before.end:
            raise ProgressConflictError(
                f"{piece} does not join the piece that ends at {before.end}"
            )
        start = piece.start if before is None else before.start
        merged[piece.partition] = Extent(start, piece.end, piece.leader_epoch)
    return merged


def standing(progress: Progress, batch: Mapping[int, Extent]) -> Standing:
    """Return whether to append or to drop a batch.

    A partition that the progress lacks may begin at any offset. Raises
    `ProgressConflictError` if the batch may be neither appended nor dropped.
    """
    ends = {p: progress.extents[p].end for p in batch if p in progress.extents}
    if all(batch[p].start == end for p, end in ends.items()):
        return Standing.NEXT
    if len(ends) == len(batch) and all(extent.end <= ends[p] for p, extent in batch.items()):
        return Standing.BEHIND
    differing = ", ".join(
        f"partition {p}: the table ends at {end}, the batch is [{batch[p].start}, {batch[p].end})"
        for p, end in sorted(ends.items())
        if batch[p].start != end
    )
    raise ProgressConflictError(f"another job archives this topic at the same time ({differing})")


def advance(
    progress: Progress,
    batch: Mapping[int, Extent],
    *,
    query_id: str,
    number: int,
    refused: Mapping[int, RefusedCount] | None = None,
) -> Progress:
    """Return the progress after `batch`, whose extents begin at the ends in `progress`.

    refused: the offsets of the batch that are not rows. The caller has checked `standing`;
    otherwise an assertion fails.
    """
    extents = dict(progress.extents)
    for partition, extent in batch.items():
        last = extents.get(partition)
        assert extent.start <= extent.end, "an extent has no negative size"
        assert last is None or extent.start == last.end, "`standing` checked that none is lost"
        last = last or extent
        extents[partition] = Extent(last.start, extent.end, extent.leader_epoch)
    counts = dict(progress.refused)
    for partition, count in (refused or {}).items():
        assert partition in batch, "a batch refuses offsets of its own only"
        counts[partition] = counts.get(partition, RefusedCount()).plus(count)
    return Progress(extents, query_id, number, counts, progress.rewinds)


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    """One archive job.

    batch_bytes: the approximate size of the log that one commit archives. raw_timestamp_id: the id
    of the table's column `rawTimestamp`, or 0 if a timestamp that is not representable is an error.
    uuid: the table's. extents: the extents of all partitions that the table holds when the query
    starts. tasks: how many tasks the cluster runs at once. file_bytes: about how many bytes of the
    log one file gets, so a small batch has fewer tasks. is_json: the table gets typed columns for
    the fields of JSON values. registry_url, registry_user_info: of the schema registry whose
    schemas describe the typed columns; empty without one. registry_version: of the subject
    `<topic>-value`, for values that do not name their schema; 0 if they do. errors: a value of
    `OnBadRecord`. dead_letters_location, dead_letters_uuid: of the table of dead letters; empty
    without one.
    partition_by: the terms of the table's spec.
    """

    bootstrap: str
    topic: str
    topic_id: str
    catalog: dict[str, str]
    identifier: tuple[str, str]
    location: str
    batch_bytes: int
    tasks: int
    skip_lost: bool
    raw_timestamp_id: int
    uuid: str
    extents: dict[int, Extent]
    file_bytes: int = 128 << 20
    is_json: bool = False
    registry_url: str = ""
    registry_user_info: str = field(default="", repr=False)
    registry_version: int = 0
    errors: str = OnBadRecord.STOP.value
    dead_letters_location: str = ""
    dead_letters_uuid: str = ""
    partition_by: tuple[str, ...] = ()

    @property
    def address(self) -> TableAddress:
        """The address of the table."""
        return TableAddress(self.catalog, self.identifier, self.uuid)

    @property
    def registry(self) -> RegistryAddress | None:
        """The schema registry that describes the values."""
        if not self.registry_url:
            return None
        return RegistryAddress(self.registry_url, self.registry_user_info)

    @property
    def schema_without_ids(self) -> SubjectVersion | None:
        """The schema of values that do not name theirs."""
        subject_version = SubjectVersion(f"{self.topic}-value", self.registry_version)
        return subject_version if self.registry_version else None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the data files."""
        return (
            with_null_timestamps(self.raw_timestamp_id) if self.raw_timestamp_id else ARROW_SCHEMA
        )

    def to_json(self) -> str:
        """Return the job as text, for Spark options."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ArchiveJob:
        """Return the job in a text of `to_json`.

        Raises `ValueError` or `KeyError` for any other text.
        """
        value = json.loads(text)
        namespace, name = value.pop("identifier")
        extents = {int(p): Extent(*numbers) for p, numbers in value.pop("extents").items()}
        terms = tuple(value.pop("partition_by"))
        return cls(identifier=(namespace, name), extents=extents, partition_by=terms, **value)
