"""The columns `data` and `rescued` of a table: created with the first fields, widened with others.

Files of earlier batches stay: Iceberg reads null for fields that a file lacks. Importing this
module imports PyIceberg.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from lakelog.tables.iceberg import table as tables
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import (
    ARROW_SCHEMA,
    DATA,
    RAW_TIMESTAMP,
    RESCUED,
    with_null_timestamps,
)
from lakelog.tables.typed.shapes import Shape, extended, with_leaves

_ATTEMPTS_MAX = 8


def typed_fields(table: Table) -> list[pa.Field]:
    """Return the typed columns that the table has, with the ids that data files need.

    Raises `ValueError` if another program has made columns of these names and other types.
    """
    schema = schema_to_pyarrow(table.schema(), include_field_ids=True)
    fields = [schema.field(name) for name in (DATA, RESCUED) if name in schema.names]
    for field in fields:
        is_ours = pa.types.is_struct if field.name == DATA else pa.types.is_large_string
        if not is_ours(field.type):
            raise ValueError(
                f"the table {'.'.join(table.name())} has a column {field.name!r} of type "
                f"{field.type}, which typed JSON values need: archive into a table of another "
                "name, or set the topic's key table.value.format to none"
            )
    return fields


def own_schema(table: Table) -> pa.Schema:
    """Return the columns of an archive that the table has, with the ids that data files need.

    Raises `ValueError` as `typed_fields`.
    """
    raw = table.schema().find_field(RAW_TIMESTAMP) if _has(table, RAW_TIMESTAMP) else None
    schema = ARROW_SCHEMA if raw is None else with_null_timestamps(raw.field_id)
    return pa.schema([*schema, *typed_fields(table)])


def foreign_columns(table: Table) -> set[str]:
    """Return the names of the columns that no archive has."""
    ours = {*ARROW_SCHEMA.names, RAW_TIMESTAMP, DATA, RESCUED}
    return {field.name for field in table.schema().fields} - ours


def widen(address: TableAddress, shapes: Iterable[Shape]) -> list[pa.Field]:
    """Add the fields of the shapes to the table; return its typed columns.

    Raises `TableReplacedError`, `ValueError` as `typed_fields`, and `CommitFailedException` if
    other programs change the table during all 8 attempts.
    """
    seen = list(shapes)
    for _ in range(_ATTEMPTS_MAX):
        table = tables.load_for_commit(address)
        fields = typed_fields(table)
        current = next((field.type for field in fields if field.name == DATA), pa.struct([]))
        widened = current
        for shape in seen:
            widened = extended(widened, shape)
        if widened == current and RESCUED in (field.name for field in fields):
            return fields
        # PyIceberg matches names and assigns ids to new fields.
        bare = with_leaves(widened, lambda leaf: leaf)
        columns = [pa.field(DATA, bare)] if len(widened) else []
        columns.append(pa.field(RESCUED, pa.large_string()))
        with contextlib.suppress(CommitFailedException), table.update_schema() as update:
            update.union_by_name(pa.schema(columns))
    raise CommitFailedException("another program keeps changing the table")


def _has(table: Table, name: str) -> bool:
    return name in (field.name for field in table.schema().fields)
