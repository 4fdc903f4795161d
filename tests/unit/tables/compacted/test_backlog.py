from __future__ import annotations

import pyarrow as pa
import pytest

from lakelog.tables.compacted import backlog as module
from lakelog.tables.compacted.backlog import Spill, backlog, take
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.buckets import bucket_numbers
from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from unit.tables.compacted.kit import Put, Tables, row


@pytest.fixture
def tables(address: TableAddress) -> Tables:
    made = Tables(address)
    made.append(*(Put(b"k%d" % (n % 3), b"v%d" % n, n % 2) for n in range(20)), Put(None, b"x", 1))
    return made


def test_the_backlog_is_between_starts_and_ends(tables: Tables) -> None:
    ranges = backlog(tables.version(), {0: 4}, {0: 10, 1: 9, 2: 3})
    assert [(each.partition, each.start, each.end) for each in ranges] == [(0, 4, 10), (1, 0, 9)]
    assert not backlog(tables.version(), {0: 10, 1: 9}, {0: 20, 1: 9})


def test_the_last_rows_of_the_keys_are_taken(tables: Tables) -> None:
    version = tables.version()
    with Spill(1, ARROW_SCHEMA) as spill:
        taken = take(version, backlog(version, {}, version.progress.ends), spill, 1 << 20)
        rows = spill.read(0).select(["key", "value", "partition"]).to_pylist()
    assert (taken.rows, taken.ends, taken.null_keys) == (21, {0: 10, 1: 11}, {1: 1})
    found = {(row["key"], row["partition"]): row["value"] for row in rows}
    assert len(found) == len(rows) == 6
    assert found[b"k0", 0] == b"v18"
    assert found[b"k0", 1] == b"v15"


def test_a_full_bucket_ends_the_round(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1)
    tables.append(Put(b"k", b"v", 0))
    version = tables.version()
    with Spill(1, ARROW_SCHEMA) as spill:
        taken = take(version, backlog(version, {}, version.progress.ends), spill, 1)
    assert taken.ends == {0: 10}, "the chunk of the first file"
    left = backlog(version, taken.ends, version.progress.ends)
    assert [(each.partition, each.start) for each in left] == [(0, 10), (1, 0)]


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
