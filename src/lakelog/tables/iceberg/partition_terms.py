"""The terms of a partitioned table, and which rows may share a data file.

A term is a column (`partition`, `timestampType`, `topic`) or a function of the timestamp (`year`,
`month`, `day`, `hour`). A data file has rows of one value of each term. Other transforms of Iceberg
are not supported: PyIceberg does not find the value of `bucket` or `truncate` in a data file.

Importing this module does not import PyIceberg. `partition_spec.py` has the table's side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

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
