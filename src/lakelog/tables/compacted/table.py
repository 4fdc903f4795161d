"""The table of newest records: how it is created, recognised and brought to the archive's columns.

It is partitioned by `bucket[N](key)`. A refresh therefore replaces only the files of the buckets
whose keys have changed, and leaves no delete files for others to apply. Iceberg defines the hash
(spec, "Bucket Transform Details"), so other programs find the bucket of a key, too.

The progress is the table property `lakelog.latest.<topic id>`, and changes in the commit that
changes the files. The summary of the commit's snapshot has the same text, so a rollback shows. The
text is `{"version": 1, "archive": "<uuid>", "rewinds": 0, "ends": {"0": 1200}, "null_keys":
{"0": 3}, "refresh": "<id>"}`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType

from lakelog.tables.archive.history import ancestors
from lakelog.tables.archive.progress import archived_topic_ids
from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.table import SCHEMA, create_table, load_for_commit
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.typed.columns import foreign_columns

ENABLED, NAME = "table.latest", "table.latest.name"
BUCKETS, INTERVAL = "table.latest.buckets", "table.latest.interval.ms"
KEYS = (ENABLED, NAME, BUCKETS, INTERVAL)
SUFFIX = "_latest"
"""By default the name of the table is that of the archive's table with this suffix."""


@dataclass(frozen=True, slots=True)
class CompactedTableLocation:
    """A table of newest records.

    address: whatever its UUID. buckets: of a new table. interval_s: between refreshes of a job.
    """

    address: TableAddress
    buckets: int
    interval_s: float


def find_compacted(
    client: TopicClient, topic: str, archive: TableAddress, *, also_disabled: bool = False
) -> CompactedTableLocation | None:
    """Return the place beside the archive's table; `None` unless `table.latest` is set.

    also_disabled: return the place in which a table may have stayed, too. Raises `KafkaError`.
    Apache Kafka has no such keys.
    """
    values = client.configs([topic], KEYS).get(topic, {})
    if ENABLED not in values or (values[ENABLED] != "true" and not also_disabled):
        return None
    namespace, name = archive.identifier
    address = TableAddress(archive.catalog, (namespace, values.get(NAME) or name + SUFFIX))
    interval_ms = int(values[INTERVAL] or 0)
    return CompactedTableLocation(address, int(values[BUCKETS] or 0), interval_ms / 1000)


_PREFIX = "lakelog.latest."
_VERSION = 1


class CompactedTableError(Exception):
    """The table of newest records cannot be refreshed as it is."""


@dataclass(frozen=True, slots=True)
class CompactedProgress:
    """The archived offsets that the table has.

    archive: the UUID of the archive's table. rewinds: of the archive's progress at that time. ends:
    the first offset of each partition that the table does not have. null_keys: how many records
    below the ends have no key, by partition. refresh: the id of the last refresh.
    """

    archive: str
    rewinds: int = 0
    ends: Mapping[int, int] = field(default_factory=dict)
    null_keys: Mapping[int, int] = field(default_factory=dict)
    refresh: str = ""

    def to_text(self) -> str:
        """Return the value of the table's property."""
        value = {
            "version": _VERSION,
            "archive": self.archive,
            "rewinds": self.rewinds,
            "ends": _with_text_keys(self.ends),
            "null_keys": _with_text_keys(self.null_keys),
            "refresh": self.refresh,
        }
        return json.dumps(value)

    @classmethod
    def from_text(cls, text: str) -> CompactedProgress:
        """Parse the text of a property or a summary. Raises `CompactedTableError`."""
        try:
            value = json.loads(text)
            if value["version"] > _VERSION:
                raise CompactedTableError(
                    f"the progress of the newest records has version {value['version']}, but this "
                    f"lakelog supports up to {_VERSION}: upgrade lakelog"
                )
            ends, null_keys = (_with_number_keys(value[name]) for name in ("ends", "null_keys"))
            archive, rewinds = str(value["archive"]), int(value["rewinds"])
            return cls(archive, rewinds, ends, null_keys, str(value["refresh"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CompactedTableError(
                f"the progress of the newest records cannot be read ({type(error).__name__}: "
                f"{error}): {text!r}. Rebuild the table: lakelog table refresh TOPIC --rebuild"
            ) from None


def property_name(topic_id: str) -> str:
    """Return the name of the property with the progress of a topic."""
    return _PREFIX + topic_id


def _with_text_keys(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(key): number for key, number in sorted(numbers.items())}


def _with_number_keys(numbers: Mapping[str, int]) -> dict[int, int]:
    return {int(key): int(number) for key, number in numbers.items()}


_KEY_ID = 6
"""The id of the column `key`; see `columns.py`."""
_FIRST_ID = 1000


def bucket_spec(buckets: int) -> PartitionSpec:
    """Return the partition spec of a table with so many buckets."""
    field = PartitionField(_KEY_ID, _FIRST_ID, BucketTransform(buckets), "key_bucket")
    return PartitionSpec(field)


def buckets_of(table: Table) -> int | None:
    """Return the number of buckets; `None` if the table is not partitioned by them alone."""
    fields = table.spec().fields
    if len(fields) != 1 or fields[0].source_id != _KEY_ID:
        return None
    transform = fields[0].transform
    return transform.num_buckets if isinstance(transform, BucketTransform) else None


def bucket_numbers(keys: pa.Array, buckets: int) -> pa.Array:
    """Return the bucket of each key."""
    numbers: pa.Array = BucketTransform(buckets).pyarrow_transform(BinaryType())(keys)
    return numbers


def by_bucket(rows: pa.Table, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each bucket that has some. Keys are not null."""
    keys = rows.column("key").combine_chunks()
    if not len(keys):
        return
    assert keys.null_count == 0, "a null key has no bucket"
    numbers = bucket_numbers(keys, buckets)
    order = pc.sort_indices(numbers)
    ordered = rows.take(order)
    start = 0
    for run in pc.value_counts(numbers.take(order)):
        number, count = run["values"].as_py(), run["counts"].as_py()
        assert 0 <= number < buckets, number
        yield number, ordered.slice(start, count)
        start += count
    assert start == len(rows), "every row is in one bucket"


def bucket_file(table: Table, path: str, bucket: int) -> DataFile:
    """Return a Parquet file with rows of one bucket, with its statistics, for a commit.

    PyIceberg finds no bucket in a file itself. Raises `OSError`.
    """
    assert bucket in range(buckets_of(table) or 0), "the table is partitioned by buckets alone"
    source = table.io.new_input(path)
    with source.open() as stream:
        metadata = pq.read_metadata(stream)
    schema = table.metadata.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=metadata,
        stats_columns=compute_statistics_plan(schema, table.metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(bucket),
        file_size_in_bytes=len(source),
        sort_order_id=None,
        spec_id=table.metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


_ATTEMPTS_MAX = 8


def open_compacted(compacted: CompactedTableLocation, archive: TopicArchive) -> Table:
    """Return the table of newest records, created if it is missing.

    Raises `CompactedTableError` if a table of this name is of another topic or another program, and
    as `create_table`.
    """
    table = find_table(compacted.address)
    if table is None:
        uuid = str(archive.table.metadata.table_uuid)
        progress = CompactedProgress(uuid, archive.progress.rewinds)
        properties = {property_name(archive.topic_id): progress.to_text()}
        try:
            table = create_table(
                compacted.address, SCHEMA, bucket_spec(compacted.buckets), properties
            )
        except TableAlreadyExistsError:  # another job has created it since
            table = compacted.address.load()
    _check(table, archive.topic_id)
    return table


def find_table(address: TableAddress) -> Table | None:
    """Return the table at the address, of any owner; `None` if there is none."""
    if not address.exists():
        return None
    with contextlib.suppress(NoSuchTableError):
        return open_catalog(address.catalog).load_table(address.identifier)
    return None


def is_compacted_of(table: Table, topic_id: str) -> bool:
    """Return whether the table has the newest records of a topic."""
    return property_name(topic_id) in table.properties


def own_compacted(client: TopicClient, archive: TopicArchive) -> TableAddress | None:
    """Return the topic's table of newest records; `None` if it has none, or no refresh yet.

    Raises `KafkaError`.
    """
    compacted = find_compacted(client, archive.topic, archive.address)
    table = None if compacted is None else find_table(compacted.address)
    if compacted is None or table is None or not is_compacted_of(table, archive.topic_id):
        return None
    return compacted.address


def agreed(table: Table, topic_id: str) -> CompactedProgress:
    """Return the progress on which property and current snapshot agree.

    Raises `CompactedTableError` if the table was rolled back.
    """
    claimed = CompactedProgress.from_text(table.properties[property_name(topic_id)])
    recorded = _recorded(table, topic_id)
    if recorded == claimed or (recorded is None and not claimed.refresh):
        return claimed
    raise CompactedTableError(
        f"the table {'.'.join(table.name())} was rolled back or changed by another program: its "
        f"property and its current snapshot {table.metadata.current_snapshot_id} have different "
        "progress. Make its newest snapshot the current one, or rebuild the table: lakelog table "
        "refresh TOPIC --rebuild"
    )


def align(address: TableAddress, archive: Table) -> Table:
    """Give the table all columns of the archive's table; return it, loaded for a commit.

    Raises `CompactedTableError` if it has columns of another program, which a refresh would lose,
    `TableReplacedError`, `ValueError` for columns of other types, and `CommitFailedException` if
    other programs change the table during all 8 attempts.
    """
    others = foreign_columns(archive)
    columns = [field for field in archive.schema().fields if field.name not in others]
    for _ in range(_ATTEMPTS_MAX):
        table = load_for_commit(address)
        extra = foreign_columns(table)
        if extra:
            raise CompactedTableError(
                f"the table {'.'.join(table.name())} has the column {min(extra)!r} of another "
                "program, which a refresh would lose: drop the column"
            )
        with contextlib.suppress(CommitFailedException):
            with table.update_schema() as update:  # commits nothing if the columns are equal
                update.union_by_name(Schema(*columns))
            return table
    raise CommitFailedException("another program keeps changing the table")


def _check(table: Table, topic_id: str) -> None:
    name = ".".join(table.name())
    way_out = "set another name in the topic's key table.latest.name, or drop that table"
    if archived_topic_ids(table.properties):
        raise CompactedTableError(f"the table {name} is the archive of a topic: {way_out}")
    if not is_compacted_of(table, topic_id):
        raise CompactedTableError(
            f"the table {name} has no progress of this topic (its id is {topic_id}): it belongs "
            f"to another program, or to an earlier topic of this name; {way_out}"
        )
    if buckets_of(table) is None:
        raise CompactedTableError(
            f"the table {name} is no longer partitioned by bucket[N](key): {way_out}"
        )


def _recorded(table: Table, topic_id: str) -> CompactedProgress | None:
    """Return the progress in the newest snapshot that has one."""
    name = property_name(topic_id)
    for snapshot in ancestors(table):
        text = snapshot.summary and snapshot.summary.additional_properties.get(name)
        if text:
            return CompactedProgress.from_text(text)
    return None


def pinned(compacted: CompactedTableLocation, table: Table) -> TableAddress:
    """Return the address of this table, with its UUID."""
    return replace(compacted.address, uuid=str(table.metadata.table_uuid))
