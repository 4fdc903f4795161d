from __future__ import annotations

import pyarrow as pa

from lakelog.tables.iceberg.columns import ARROW_SCHEMA, RAW_TIMESTAMP, with_null_timestamps


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
