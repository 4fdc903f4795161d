from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.tables.compacted import backlog as module
from lakelog.tables.compacted.backlog import (
    BucketMerge,
    Spill,
    backlog,
    fitted,
    last_of_partitions,
    newest,
    take,
)
from lakelog.tables.compacted.table import bucket_numbers
from lakelog.tables.iceberg.address import TableAddress
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


def table(*puts: tuple[int, Put]) -> pa.Table:
    return pa.Table.from_pylist([row(put, offset) for offset, put in puts], ARROW_SCHEMA)


@pytest.fixture
def present(tmp_path: Path) -> str:
    """The keys `k00` to `k19`, in row groups of five."""
    path = tmp_path / "present.parquet"
    rows = table(*((number, Put(b"k%02d" % number, b"v", at=5)) for number in range(20)))
    pq.write_table(rows, path, row_group_size=5)
    return path.as_uri()


def merged(present: str, tmp_path: Path, *puts: tuple[int, Put]) -> pa.Table | None:
    merge = BucketMerge([present], ARROW_SCHEMA, {})
    target = tmp_path / "new.parquet"
    paths = merge.write(merge.winners(table(*puts)), target.as_uri())
    return pq.read_table(target) if paths else None


def test_the_new_file_is_in_the_order_of_the_keys(present: str, tmp_path: Path) -> None:
    puts = [(30, Put(b"k03", b"w")), (31, Put(b"k04x", b"new")), (32, Put(b"z", b"last"))]
    puts += [(33, Put(b"a", b"first")), (34, Put(b"k07", None))]
    rows = merged(present, tmp_path, *puts)
    assert rows is not None
    keys = rows["key"].to_pylist()
    assert keys == sorted({*(b"k%02d" % n for n in range(20) if n != 7), b"a", b"k04x", b"z"})
    assert rows["value"].to_pylist()[keys.index(b"k03")] == b"w"
    assert pq.ParquetFile(tmp_path / "new.parquet").num_row_groups == 1, "small ones are joined"


def test_rows_of_any_size_are_written_in_groups(
    present: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_BYTES", 1)
    rows = merged(present, tmp_path, (30, Put(b"k03", b"w")))
    assert rows is not None
    assert rows.num_rows == 20


def test_records_that_change_nothing_are_no_winners(present: str) -> None:
    merge = BucketMerge([present], ARROW_SCHEMA, {})
    puts = [(30, Put(b"unknown", None)), (0, Put(b"k01", b"older", partition=1, at=4))]
    assert merge.winners(table(*puts)).num_rows == 0
    newer = merge.winners(table((0, Put(b"k01", b"newer", partition=1, at=6))))
    assert newer["value"].to_pylist() == [b"newer"]


def test_a_bucket_without_rows_has_no_file(present: str, tmp_path: Path) -> None:
    puts = [(30 + number, Put(b"k%02d" % number, None)) for number in range(20)]
    assert merged(present, tmp_path, *puts) is None
    assert not (tmp_path / "new.parquet").exists()


def test_a_failure_leaves_no_file(
    present: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = BucketMerge([present], ARROW_SCHEMA, {})
    winners = merge.winners(table((30, Put(b"k03", b"w"))))
    monkeypatch.setattr(BucketMerge, "_merged", lambda *_: iter([winners, None]))
    with pytest.raises(AttributeError):
        merge.write(winners, (tmp_path / "new.parquet").as_uri())
    assert not (tmp_path / "new.parquet").exists()


def test_missing_columns_are_null() -> None:
    rows = table((0, Put(b"a", b"1"))).drop_columns(["headers"])
    assert fitted(rows, ARROW_SCHEMA)["headers"].to_pylist() == [None]


def newest_table(puts: list[tuple[int, Put]]) -> pa.Table:
    schema = pa.schema([each.with_nullable(True) for each in ARROW_SCHEMA])
    return pa.Table.from_pylist([row(put, offset) for offset, put in puts], schema)


def found(rows: pa.Table) -> dict[bytes, bytes | None]:
    pairs = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
    return dict(pairs)


def test_in_a_partition_the_greatest_offset_is_the_newest_for_any_timestamps() -> None:
    puts = [(7, Put(b"a", b"new", at=1)), (3, Put(b"a", b"old", at=9)), (5, Put(b"b", None, at=5))]
    assert found(newest(newest_table(puts))) == {b"a": b"new", b"b": None}


@pytest.mark.parametrize(
    ("first", "second", "value"),
    [
        (Put(b"a", b"p0", 0, at=8), Put(b"a", b"p1", 1, at=2), b"p0"),
        (Put(b"a", b"p0", 0, at=2), Put(b"a", b"p1", 1, at=8), b"p1"),
        (Put(b"a", b"p0", 0, at=5), Put(b"a", b"p1", 1, at=5), b"p1"),
    ],
)
def test_partitions_are_compared_by_timestamp_and_then_by_number(
    first: Put, second: Put, value: bytes
) -> None:
    assert found(newest(newest_table([(9, first), (0, second)]))) == {b"a": value}


def test_a_timestamp_that_no_table_has_is_the_oldest() -> None:
    rows = newest_table([(0, Put(b"a", b"p0", 0, at=1)), (0, Put(b"a", b"p1", 1, at=9))])
    times = pa.array([datetime.fromtimestamp(1, UTC), None], rows.schema.field("timestamp").type)
    column = rows.schema.get_field_index("timestamp")
    rows = rows.set_column(column, rows.schema.field("timestamp"), times)
    assert found(newest(rows)) == {b"a": b"p0"}


def test_rows_are_as_in_a_dictionary_and_in_the_order_of_the_keys() -> None:
    rng = random.Random(7)
    puts = [
        (offset, Put(rng.randbytes(rng.randrange(2)), rng.choice([None, b"%d" % offset])))
        for offset in range(2000)
    ]
    expected = {put.key: put.value for _, put in puts}
    rng.shuffle(puts)
    rows = newest(newest_table(puts))
    assert found(rows) == expected
    assert rows["key"].to_pylist() == sorted(rows["key"].to_pylist())
    assert rows.schema.names == ARROW_SCHEMA.names
    assert len(last_of_partitions(rows)) == len(rows)


def test_no_rows_have_no_newest() -> None:
    assert newest(newest_table([])).num_rows == 0
