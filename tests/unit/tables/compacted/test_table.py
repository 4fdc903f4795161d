from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pyiceberg.types import StringType

from lakelog.tables.compacted.progress import CompactedTableError
from lakelog.tables.compacted.table import align, find_table, is_compacted_of, open_compacted
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.buckets import buckets_of
from lakelog.tables.iceberg.table import SCHEMA, admit_null_timestamps, ensure_table
from lakelog.tables.typed.columns import widen
from lakelog.tables.typed.shapes import shape_of
from unit.tables.archive_table import TOPIC_ID
from unit.tables.compacted.kit import BUCKETS, Put, Tables


@pytest.fixture
def tables(address: TableAddress) -> Tables:
    return Tables(address)


def test_a_new_table_is_found_and_kept(tables: Tables) -> None:
    assert find_table(tables.place.address) is None
    table = open_compacted(tables.place, tables.version())
    assert buckets_of(table) == BUCKETS
    assert is_compacted_of(table, TOPIC_ID)
    assert not is_compacted_of(table, "another topic")
    again = open_compacted(replace(tables.place, buckets=9), tables.version())
    assert again.metadata.table_uuid == table.metadata.table_uuid
    assert buckets_of(again) == BUCKETS, "the number applies to new tables"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, "belongs to another program"),
        ({"lakelog.latest.another": "{}"}, "an earlier topic"),
        ({"lakelog.sync.another": "{}"}, "is the archive of a topic"),
        ({f"lakelog.latest.{TOPIC_ID}": "{}"}, "no longer partitioned"),
    ],
)
def test_tables_of_others_are_refused(
    tables: Tables, properties: dict[str, str], expected: str
) -> None:
    table = ensure_table(tables.place.address, SCHEMA)
    with table.transaction() as transaction:
        transaction.set_properties(properties)
    tables.append(Put(b"a", b"1"))
    with pytest.raises(CompactedTableError, match=expected) as failure:
        tables.refresh()
    assert "table.latest.name" in str(failure.value)
    with pytest.raises(CompactedTableError, match=expected):
        tables.refresh(rebuild=True)


@pytest.mark.long
def test_columns_of_json_values_follow_the_archive(tables: Tables) -> None:
    tables.append(Put(b"old", b"v"))
    tables.refresh()
    for number, value in enumerate((b'{"a": 1}', b'{"b": {"c": ["x"]}, "a": "text"}')):
        fields = widen(tables.archive, [shape_of([json.loads(value)])])
        tables.append(Put(b"k%d" % number, value), typed=fields)
        tables.refresh()
    admit_null_timestamps(tables.archive)
    tables.append(Put(b"k0", b"w"))
    tables.refresh()
    table = tables.place.address.load()
    archived = tables.archive.load().schema()
    assert table.schema().column_names == archived.column_names
    assert table.schema().find_field("timestamp").optional
    rows = {row["key"]: (row["data"], row["rescued"]) for row in tables.rows("data", "rescued")}
    assert rows == {
        b"old": (None, None),
        b"k0": (None, None),
        b"k1": ({"a": None, "b": {"c": ["x"]}}, '{"$.a":"text"}'),
    }


def test_a_column_of_another_program_stops_the_refresh(tables: Tables) -> None:
    tables.append(Put(b"a", b"1"))
    tables.refresh()
    with tables.place.address.load().update_schema() as update:
        update.add_column("note", StringType())
    with pytest.raises(CompactedTableError, match="the column 'note' of another program"):
        align(tables.place.address, tables.archive.load())


def test_other_columns_of_the_archive_are_left_out(tables: Tables) -> None:
    with tables.archive.load().update_schema() as update:
        update.add_column("note", StringType())
    tables.append(Put(b"a", b"1"))
    tables.refresh()
    assert "note" not in tables.place.address.load().schema().column_names
    assert tables.values() == {b"a": b"1"}
