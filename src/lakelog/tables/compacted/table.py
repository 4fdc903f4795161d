"""The table of newest records: how it is created, recognised and brought to the archive's columns.

It is partitioned by `bucket[N](key)`. A refresh therefore replaces only the files of the buckets
whose keys have changed, and leaves no delete files for others to apply.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakelog.tables.archive.history import ancestors
from lakelog.tables.archive.progress import archived_topic_ids
from lakelog.tables.compacted.location import CompactedTableLocation, find_compacted
from lakelog.tables.compacted.progress import CompactedProgress, CompactedTableError, property_name
from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.buckets import bucket_spec, buckets_of
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.table import SCHEMA, create_table, load_for_commit
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.typed.columns import foreign_columns

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
