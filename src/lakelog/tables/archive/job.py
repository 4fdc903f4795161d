"""The description of an archive job: topic, table, limits.

Every process of the job gets it as JSON. Importing this module does not import PyIceberg.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

import pyarrow as pa

from lakelog.tables.archive.progress import Extent
from lakelog.tables.archive.refusals import OnBadRecord
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import ARROW_SCHEMA, with_null_timestamps
from lakelog.tables.registry.client import RegistryAddress
from lakelog.tables.registry.schemas import SubjectVersion


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
