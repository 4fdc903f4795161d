from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.types import StringType

from lakelog.tables.compacted.table import (
    CompactedProgress,
    CompactedTableError,
    CompactedTableLocation,
    align,
    bucket_file,
    bucket_numbers,
    bucket_spec,
    buckets_of,
    by_bucket,
    find_compacted,
    find_table,
    is_compacted_of,
    open_compacted,
    property_name,
)
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.table import SCHEMA, admit_null_timestamps, create_table, ensure_table
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.typed.columns import widen
from lakelog.tables.typed.shapes import shape_of
from unit.tables.archive_log import Log
from unit.tables.archive_table import TOPIC_ID
from unit.tables.compacted.kit import BUCKETS, Put, Tables, row, write


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


ARCHIVE = TableAddress({"uri": "sqlite:///x"}, ("lakelog", "sales"))
SETTINGS = {"table.latest.buckets": "16", "table.latest.interval.ms": "1500"}


def found(**keys: str) -> CompactedTableLocation | None:
    log = Log({0: 0})
    log.keys = {f"table.{name.replace('_', '.')}": value for name, value in keys.items()}
    log.keys |= SETTINGS
    return find_compacted(cast(TopicClient, log), "orders", ARCHIVE)


def test_the_table_is_beside_the_archive() -> None:
    location = found(latest="true")
    assert location is not None
    assert location.address == TableAddress(ARCHIVE.catalog, ("lakelog", "sales_latest"))
    assert (location.buckets, location.interval_s) == (16, 1.5)
    named = found(latest="true", latest_name="customers")
    assert named is not None
    assert named.address.identifier == ("lakelog", "customers")


def test_topics_have_no_such_table_unless_it_is_enabled() -> None:
    assert found() is None
    assert found(latest="false", latest_name="x") is None


def test_a_table_may_have_stayed_after_its_key_was_reset() -> None:
    log = Log({0: 0})
    log.keys = {"table.latest": "false", **SETTINGS}
    client = cast(TopicClient, log)
    location = find_compacted(client, "orders", ARCHIVE, also_disabled=True)
    assert location is not None
    assert location.address.identifier == ("lakelog", "sales_latest")
    log.keys = {}
    assert find_compacted(client, "orders", ARCHIVE, also_disabled=True) is None


def test_progress_survives_the_tables_property() -> None:
    progress = CompactedProgress("uuid", 2, {0: 12, 11: 3}, {11: 1}, "id")
    assert CompactedProgress.from_text(progress.to_text()) == progress
    assert property_name("topic") == "lakelog.latest.topic"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "--rebuild"),
        ("[]", "--rebuild"),
        ('{"version": 1}', "--rebuild"),
        ('{"version": 2}', "upgrade lakelog"),
    ],
)
def test_text_of_others_is_named(text: str, expected: str) -> None:
    with pytest.raises(CompactedTableError, match=expected):
        CompactedProgress.from_text(text)


@pytest.fixture
def bucketed(address: TableAddress) -> TableAddress:
    """A table with four buckets."""
    other = TableAddress(address.catalog, ("lakelog", "bucketed"))
    create_table(other, SCHEMA, bucket_spec(4))
    return other


def test_the_hash_is_that_of_icebergs_specification() -> None:
    """Appendix B: the bytes 00 01 02 03 have the hash -188683207."""
    keys = pa.array([b"\x00\x01\x02\x03"], pa.large_binary())
    assert bucket_numbers(keys, 1000).to_pylist() == [(-188683207 & 0x7FFFFFFF) % 1000]


def test_rows_are_divided_by_the_hash() -> None:
    rows = pa.table({"key": pa.array([b"%d" % n for n in range(50)], pa.large_binary())})
    parts = dict(by_bucket(rows, 4))
    assert sum(part.num_rows for part in parts.values()) == 50
    for bucket, part in parts.items():
        assert set(bucket_numbers(part["key"].combine_chunks(), 4).to_pylist()) == {bucket}
    assert not list(by_bucket(rows.slice(0, 0), 4))


def test_a_file_of_a_bucket_is_found_by_its_keys(bucketed: TableAddress) -> None:
    table = bucketed.load()
    keys = [b"k%d" % number for number in range(20)]
    numbers = bucket_numbers(pa.array(keys, pa.large_binary()), 4).to_pylist()
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        for bucket in set(numbers):
            own = [key for key, number in zip(keys, numbers, strict=True) if number == bucket]
            path = write(bucketed, [row(Put(key, b"v"), 0) for key in own])
            update.append_data_file(bucket_file(table, path, bucket))
    table = bucketed.load()
    scan = table.scan(row_filter=EqualTo("key", b"k7"))
    assert table.scan().to_arrow().num_rows == 20
    assert scan.to_arrow()["key"].to_pylist() == [b"k7"]
    assert len(list(scan.plan_files())) == 1, "the other buckets are not read"
    assert buckets_of(table) == 4
    assert all(Path(each.file.file_path[7:]).exists() for each in table.scan().plan_files())


def test_other_tables_have_no_buckets(address: TableAddress) -> None:
    assert buckets_of(address.load()) is None
