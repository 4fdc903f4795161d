from __future__ import annotations

import pyarrow as pa

from lakelog.tables.iceberg.buckets import bucket_numbers
from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from lakelog.tables.latest.spill import Spill
from unit.tables.latest.kit import Put, row

BUCKETS = 3


def rows(start: int, end: int) -> pa.Table:
    made = [row(Put(b"k%d" % number, b"v"), number) for number in range(start, end)]
    return pa.Table.from_pylist(made, ARROW_SCHEMA)


def test_each_bucket_has_the_rows_of_its_keys() -> None:
    with Spill(BUCKETS, ARROW_SCHEMA) as spill:
        spill.add(rows(0, 40))
        spill.add(rows(40, 41))
        spill.add(rows(41, 100))
        assert sorted(spill.sizes) == [0, 1, 2]
        assert all(size > 1000 for size in spill.sizes.values())
        found = [spill.read(bucket) for bucket in range(BUCKETS)]
    assert sorted(pa.concat_tables(found)["offset"].to_pylist()) == list(range(100))
    for bucket, part in enumerate(found):
        numbers = bucket_numbers(part["key"].combine_chunks(), BUCKETS)
        assert set(numbers.to_pylist()) == {bucket}


def test_a_bucket_without_rows_is_empty() -> None:
    with Spill(BUCKETS, ARROW_SCHEMA) as spill:
        assert spill.read(2).num_rows == 0
        assert not spill.sizes
