from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.buckets import (
    bucket_file,
    bucket_numbers,
    bucket_spec,
    buckets_of,
    by_bucket,
)
from lakelog.tables.iceberg.table import SCHEMA, create_table
from unit.tables.compacted.kit import Put, row, write


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
