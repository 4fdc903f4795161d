from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lakelog.tables.iceberg.columns import (
    ARROW_SCHEMA,
    RAW_TIMESTAMP,
    PartitionTerm,
    divided,
    parse_terms,
    with_null_timestamps,
)


def ids_of(fields: pa.Schema | pa.StructType) -> list[int]:
    """Return the ids of all fields, nested ones included."""
    found = []
    for field in fields:
        found.append(int(field.metadata[b"PARQUET:field_id"]))
        if pa.types.is_large_list(field.type):
            found += ids_of([field.type.value_field])
        elif pa.types.is_struct(field.type):
            found += ids_of(field.type)
    return found


def test_each_column_has_an_id_of_its_own() -> None:
    """Iceberg finds columns in data files by id, not by name."""
    assert ids_of(ARROW_SCHEMA) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]


def test_a_table_with_raw_timestamps_changes_only_the_timestamp() -> None:
    schema = with_null_timestamps(12)
    assert ids_of(schema) == [*ids_of(ARROW_SCHEMA), 12]
    changed = [field.name for field in ARROW_SCHEMA if schema.field(field.name) != field]
    assert changed == ["timestamp"]
    assert schema.field("timestamp").nullable
    assert schema.field(RAW_TIMESTAMP).type == pa.int64()


NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
TIMES = [
    NOON,
    NOON.replace(hour=13),
    None,
    NOON.replace(day=28),
    NOON.replace(month=3),
    datetime(1969, 12, 31, 23, tzinfo=UTC),
    NOON,
]
ROWS = pa.RecordBatch.from_pydict(
    {
        "timestamp": pa.array(TIMES, pa.timestamp("us", "UTC")),
        "partition": pa.array([0, 1, 0, 1, 0, 1, 0], pa.int32()),
        "offset": pa.array(range(7), pa.int64()),
    }
)


def groups(*terms: str, of: pa.RecordBatch = ROWS) -> list[list[int]]:
    found = divided(of, parse_terms(terms))
    return sorted(rows.column("offset").to_pylist() for _, rows in found)


def test_terms_are_columns_and_functions_of_the_timestamp() -> None:
    terms = parse_terms(["day(timestamp)", " partition"])
    assert terms == (PartitionTerm("day", "timestamp"), PartitionTerm("identity", "partition"))
    assert list(map(str, terms)) == ["day(timestamp)", "partition"]
    assert parse_terms(map(str, terms)) == terms
    assert parse_terms([]) == ()


@pytest.mark.parametrize(
    "text", ["bucket(4)", "day(offset)", "value", "identity(", "", "day()", "truncate(timestamp)"]
)
def test_an_unknown_term_is_an_error_that_names_the_others(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a list of partition, .*hour\(timestamp\)"):
        parse_terms([text])


def test_a_column_has_one_term() -> None:
    with pytest.raises(ValueError, match="two terms of the column 'timestamp'"):
        parse_terms(["day(timestamp)", "year(timestamp)"])


def test_rows_of_different_values_are_divided_in_their_order() -> None:
    assert groups() == [[0, 1, 2, 3, 4, 5, 6]]
    assert groups("partition") == [[0, 2, 4, 6], [1, 3, 5]]
    assert groups("year(timestamp)") == [[0, 1, 3, 4, 6], [2], [5]]
    assert groups("month(timestamp)") == [[0, 1, 3, 6], [2], [4], [5]]
    assert groups("day(timestamp)") == [[0, 1, 6], [2], [3], [4], [5]]
    assert groups("hour(timestamp)", "partition") == [[0, 6], [1], [2], [3], [4], [5]]


@pytest.mark.parametrize("unit", ["year", "hour"])
def test_a_row_without_a_timestamp_is_in_one_part(unit: str) -> None:
    """Also if all others have the same value."""
    assert groups(f"{unit}(timestamp)", of=ROWS.take([1, 2])) == [[1], [2]]
    assert groups(f"{unit}(timestamp)", of=ROWS.take([2, 2])) == [[2, 2]]
