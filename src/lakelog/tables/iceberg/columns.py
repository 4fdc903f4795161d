"""The schema of the data files, as Arrow declares it.

It equals the table's schema in `table.py` (a test compares them). It is declared a second time
because processes that only write files must not import PyIceberg.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_FIELD_ID = "PARQUET:field_id"


def field(number: int, name: str, type_: pa.DataType, *, nullable: bool = True) -> pa.Field:
    """Return a field with an id: Iceberg finds columns in data files by id."""
    return pa.field(name, type_, nullable, metadata={_FIELD_ID: str(number)})


def id_of(field: pa.Field) -> int | None:
    """Return the id of a field of a data file; `None` if another program wrote none."""
    number = (field.metadata or {}).get(_FIELD_ID.encode())
    return None if number is None else int(number)


def names_in(schema: pa.Schema, ids: Mapping[str, int]) -> dict[str, str]:
    """Return the names of columns in a file, found by id as Iceberg requires.

    ids: by the names that the table has, which stand for columns without an id.
    """
    by_id = {id_of(field): field.name for field in schema}
    return {name: by_id.get(number, name) for name, number in ids.items()}


RAW_TIMESTAMP = "rawTimestamp"
"""The column for timestamps outside the years 1 to 9999, in milliseconds since the epoch.

The row's `timestamp` is null then."""
DATA, RESCUED = "data", "rescued"
"""The columns of typed JSON values; see `lakelog.tables.typed`."""

_HEADER = pa.struct([field(10, "key", pa.large_string()), field(11, "value", pa.large_binary())])
# Ids are assigned level by level, because PyIceberg renumbers them so when it creates a table.
ARROW_SCHEMA = pa.schema(
    [
        field(1, "topic", pa.large_string(), nullable=False),
        field(2, "partition", pa.int32(), nullable=False),
        field(3, "offset", pa.int64(), nullable=False),
        field(4, "timestamp", pa.timestamp("us", "UTC"), nullable=False),
        field(5, "timestampType", pa.int32(), nullable=False),
        field(6, "key", pa.large_binary()),
        field(7, "value", pa.large_binary()),
        field(8, "headers", pa.large_list(field(9, "element", _HEADER, nullable=False))),
    ]
)


def with_null_timestamps(raw_timestamp_id: int) -> pa.Schema:
    """Return the schema of a table with nullable timestamps and the column `rawTimestamp`.

    raw_timestamp_id: the id of that column in the table.
    """
    nullable = field(4, "timestamp", pa.timestamp("us", "UTC"))
    schema = ARROW_SCHEMA.set(ARROW_SCHEMA.get_field_index("timestamp"), nullable)
    return schema.append(field(raw_timestamp_id, RAW_TIMESTAMP, pa.int64()))


IDENTITY = "identity"
TIMES = ("year", "month", "day", "hour")
COLUMNS = ("partition", "timestampType", "topic")
_TERM = re.compile(r"(?:(?P<transform>\w+)\((?P<argument>\w+)\)|(?P<column>\w+))", re.ASCII)
_EXPECTED = "a list of " + ", ".join([*COLUMNS, *(f"{unit}(timestamp)" for unit in TIMES)])


class PartitionTerm(NamedTuple):
    """A transform (`identity` or one of `TIMES`) of a column."""

    transform: str
    column: str

    def __str__(self) -> str:
        return self.column if self.transform == IDENTITY else f"{self.transform}({self.column})"


def parse_terms(texts: Iterable[str]) -> tuple[PartitionTerm, ...]:
    """Return the terms in the values of `table.partition_by`.

    Raises `ValueError` for an unknown term, and for two terms of one column.
    """
    terms: list[PartitionTerm] = []
    for text in texts:
        term = _parsed(text.strip())
        if any(term.column == other.column for other in terms):
            raise ValueError(f"table.partition_by has two terms of the column {term.column!r}")
        terms.append(term)
    return tuple(terms)


def _parsed(text: str) -> PartitionTerm:
    match = _TERM.fullmatch(text)
    term = PartitionTerm("", "")
    if match is not None:
        transform = match["transform"] or IDENTITY
        term = PartitionTerm(transform, match["argument"] or match["column"])
    is_time = term.transform in TIMES and term.column == "timestamp"
    if not is_time and not (term.transform == IDENTITY and term.column in COLUMNS):
        raise ValueError(f"table.partition_by has {text!r}: expected {_EXPECTED}")
    return term


def divided(
    rows: pa.RecordBatch, terms: Sequence[PartitionTerm]
) -> Iterator[tuple[tuple[object, ...], pa.RecordBatch]]:
    """Yield the rows of each combination of values, in their order, with these values.

    The values only distinguish files; the table's are computed from the files.
    """
    if not terms:
        yield (), rows
        return
    term, *others = terms
    values, count = _values(rows, term), 0
    for value in pc.unique(values):
        # `all` ignores nulls: without `fill_null`, rows without a value would be in two parts.
        is_equal = pc.equal(values, value) if value.is_valid else pc.is_null(values)
        mask = pc.fill_null(is_equal, False)
        part = rows if pc.all(mask).as_py() else rows.filter(mask)
        count += len(part)
        for rest, divided_rows in divided(part, others):
            yield (value.as_py(), *rest), divided_rows
    assert count == len(rows), "each row has one value"


def _values(rows: pa.RecordBatch, term: PartitionTerm) -> pa.Array:
    column = rows.column(term.column)
    if term.transform == IDENTITY:
        return column
    # The start of the unit, as a number: cheaper than a text, and the same for equal times.
    floor = pc.floor_temporal(column.cast(pa.timestamp("us")), unit=term.transform)
    return floor.cast(pa.int64())
