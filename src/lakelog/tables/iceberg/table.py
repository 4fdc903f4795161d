"""The table of an archive: its schema, its properties, and how it is created and loaded.

Importing this module imports PyIceberg.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence

from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.transforms import VoidTransform, parse_transform
from pyiceberg.types import LongType, NestedField
from sqlalchemy.exc import SQLAlchemyError

from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog, open_file_io
from lakelog.tables.iceberg.columns import (
    ARROW_SCHEMA,
    IDENTITY,
    RAW_TIMESTAMP,
    PartitionTerm,
    parse_terms,
)
from lakelog.tables.iceberg.stored_files import stored_files
from lakelog.tables.iceberg.warehouse import check_table_name

_FIRST_ID = 1000
"""Iceberg spec, "Partition Evolution": ids of partition fields begin at 1000."""


def spec_of(terms: Sequence[PartitionTerm], schema: Schema) -> PartitionSpec:
    """Return the partition spec of a new table."""
    assert len({term.column for term in terms}) == len(terms), "`parse_terms` refuses others"
    return PartitionSpec(
        *(
            PartitionField(
                source_id=schema.find_field(term.column).field_id,
                field_id=_FIRST_ID + number,
                transform=parse_transform(term.transform),
                name=term.column
                if term.transform == IDENTITY
                else f"{term.column}_{term.transform}",
            )
            for number, term in enumerate(terms)
        )
    )


def terms_of(table: Table) -> tuple[PartitionTerm, ...]:
    """Return the terms of a table's partition spec.

    Raises `ValueError` if the archive cannot write files for the spec.
    """
    try:
        return parse_terms(map(str, _terms(table)))
    except ValueError:
        raise ValueError(
            f"the table {'.'.join(table.name())} is partitioned by {spec_text(table)}, which an "
            "archive does not support: archive into a table of another name"
        ) from None


def spec_text(table: Table) -> str:
    """Return the terms of a table's partition spec as text, supported or not."""
    return ",".join(map(str, _terms(table)))


def _terms(table: Table) -> list[PartitionTerm]:
    columns = table.schema()
    return [
        PartitionTerm(str(field.transform), columns.find_column_name(field.source_id) or "")
        for field in table.spec().fields
        if not isinstance(field.transform, VoidTransform)
    ]


SNAPSHOTS_MAX = 100
"""The limit of kept snapshots. Every commit copies their list, so its cost grows with them."""

SCHEMA = pyarrow_to_schema(ARROW_SCHEMA)
"""The columns of an archive's table, as its data files have them."""
_RETRIES = {TableProperties.COMMIT_NUM_RETRIES: "0"}
"""No retries by PyIceberg: they would repeat a failed commit without checking the progress."""
_HOUSEKEEPING = {
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: str(SNAPSHOTS_MAX),
}
"""Properties that keep commits cheap. A table that has other values keeps them."""
_ATTEMPTS_MAX = 8


def ensure_table(
    address: TableAddress, schema: Schema = SCHEMA, partition_by: Sequence[PartitionTerm] = ()
) -> Table:
    """Load the table; create it and its namespace first if they are missing.

    partition_by: of a new table; without any an existing table may have terms of its own. Raises
    `ValueError` if the existing table has other columns, or other or unsupported terms, and
    `OSError` if the warehouse cannot be written to.
    """
    check_table_name(address.identifier[1])
    catalog = open_catalog(address.catalog)
    with contextlib.suppress(NoSuchTableError):
        return _fitting(catalog.load_table(address.identifier), schema, partition_by)
    try:
        return create_table(address, schema, spec_of(partition_by, schema))
    # Another job has created it since.
    except TableAlreadyExistsError:
        return _fitting(catalog.load_table(address.identifier), schema, partition_by)


def create_table(
    address: TableAddress,
    schema: Schema,
    spec: PartitionSpec,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """Create a table, and its namespace if it is missing.

    properties: in addition to the defaults of lakelog. Raises `TableAlreadyExistsError`,
    `ValueError` for an impossible name, and `OSError` if the warehouse cannot be written to.
    """
    check_table_name(address.identifier[1])
    catalog = open_catalog(address.catalog)
    with contextlib.suppress(NamespaceAlreadyExistsError, SQLAlchemyError):
        catalog.create_namespace_if_not_exists(address.identifier[0])
    names = {TableProperties.DEFAULT_NAME_MAPPING: schema.name_mapping.model_dump_json()}
    return catalog.create_table(
        address.identifier,
        schema,
        location=_free_location(address),
        partition_spec=spec,
        properties={**_RETRIES, **_HOUSEKEEPING, **names, **(properties or {})},
    )


def _free_location(address: TableAddress) -> str:
    """Return a place without files, for a new table.

    A dropped table may have left its files there on purpose; the cleanup of the new table would
    remove them as orphans.
    """
    namespace, name = address.identifier
    location = f"{address.catalog['warehouse']}/{namespace}/{name}"
    # A store that cannot be listed has no cleanup either.
    with contextlib.suppress(ValueError):
        files = stored_files(open_file_io(address.catalog, location), location)
        if next(files, None) is not None:
            return f"{location}-{uuid.uuid4().hex[:8]}"
    return location


def admit_null_timestamps(address: TableAddress) -> int:
    """Make timestamps of the table optional and add the column `rawTimestamp`; return its id.

    Raises `TableReplacedError`, `ValueError` if the column exists with another type, and
    `CommitFailedException` if other programs change the table during all 8 attempts.
    """
    for _ in range(_ATTEMPTS_MAX):
        table = load_for_commit(address)
        columns = {column.name: column for column in table.schema().fields}
        raw = columns.get(RAW_TIMESTAMP)
        if raw is not None and (raw.required or raw.field_type != LongType()):
            raise ValueError(
                f"the table {'.'.join(address.identifier)} has a column {raw} of another type: "
                "archive into a table of another name"
            )
        if raw is not None and columns["timestamp"].optional:
            return int(raw.field_id)
        with contextlib.suppress(CommitFailedException), table.update_schema() as update:
            update.make_column_optional("timestamp")
            if raw is None:
                update.add_column(RAW_TIMESTAMP, LongType())
    raise CommitFailedException("another program keeps changing the table")


def load_for_commit(address: TableAddress) -> Table:
    """Load the table so that PyIceberg does not retry commits to it by itself.

    PyIceberg reads the number of retries from the properties that the table had when it was loaded.
    Missing properties are set first: another program may have created the table or removed them.
    Raises `TableReplacedError`, and `CommitFailedException` if other programs remove the properties
    during all 8 attempts.
    """
    for _ in range(_ATTEMPTS_MAX):
        table = address.load()
        missing = {key: text for key, text in _HOUSEKEEPING.items() if key not in table.properties}
        if table.properties.items() >= _RETRIES.items() and not missing:
            return table
        with contextlib.suppress(CommitFailedException), table.transaction() as transaction:
            transaction.set_properties({**missing, **_RETRIES})
    name = ".".join(address.identifier)
    raise CommitFailedException(f"another program keeps removing properties of the table {name}")


def rows_in(table: Table) -> int:
    """Return the number of rows that the current snapshot states."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary["total-records"] or 0)


def _fitting(table: Table, schema: Schema, partition_by: Sequence[PartitionTerm]) -> Table:
    """Return `table` if its columns have the ids that data files of the archive use.

    Further columns must be optional, and the partition spec must be of `partition_by`, if there are
    terms. Raises `ValueError`.
    """
    name = ".".join(table.name())
    ours, theirs = schema.as_struct(), table.schema().as_struct()
    for column in ours.fields:
        if not _is_like(theirs.field(column.field_id), column):
            raise ValueError(
                f"the table {name} lacks the column {column.name!r} of an archive (id "
                f"{column.field_id}, {column.field_type}): archive into a table of another name"
            )
    # Rows of the archive would lack a value for it.
    if any(column.required for column in theirs.fields if column not in ours.fields):
        raise ValueError(
            f"the table {name} has required columns that an archive does not write: archive "
            "into a table of another name"
        )
    terms = terms_of(table)
    if partition_by and terms != tuple(partition_by):
        configured = ",".join(map(str, partition_by))
        raise ValueError(
            f"the table {name} is partitioned by {','.join(map(str, terms)) or 'nothing'}, but "
            f"table.partition_by is {configured}: it applies to new tables only. Reset the key, or "
            "archive into a table of another name"
        )
    return table


def _is_like(existing: NestedField | None, column: NestedField) -> bool:
    """Return whether the column accepts the values of an archive; it may be optional instead of
    required."""
    return (
        existing is not None
        and (existing.name, existing.field_type) == (column.name, column.field_type)
        and (column.required or existing.optional)
    )
