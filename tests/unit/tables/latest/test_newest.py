from __future__ import annotations

import random
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from lakelog.tables.latest.newest import last_of_partitions, newest
from unit.tables.latest.kit import Put, row


def table(puts: list[tuple[int, Put]]) -> pa.Table:
    schema = pa.schema([each.with_nullable(True) for each in ARROW_SCHEMA])
    return pa.Table.from_pylist([row(put, offset) for offset, put in puts], schema)


def found(rows: pa.Table) -> dict[bytes, bytes | None]:
    pairs = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
    return dict(pairs)


def test_in_a_partition_the_greatest_offset_is_the_newest_for_any_timestamps() -> None:
    puts = [(7, Put(b"a", b"new", at=1)), (3, Put(b"a", b"old", at=9)), (5, Put(b"b", None, at=5))]
    assert found(newest(table(puts))) == {b"a": b"new", b"b": None}


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
    assert found(newest(table([(9, first), (0, second)]))) == {b"a": value}


def test_a_timestamp_that_no_table_has_is_the_oldest() -> None:
    rows = table([(0, Put(b"a", b"p0", 0, at=1)), (0, Put(b"a", b"p1", 1, at=9))])
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
    rows = newest(table(puts))
    assert found(rows) == expected
    assert rows["key"].to_pylist() == sorted(rows["key"].to_pylist())
    assert rows.schema.names == ARROW_SCHEMA.names
    assert len(last_of_partitions(rows)) == len(rows)


def test_no_rows_have_no_newest() -> None:
    assert newest(table([])).num_rows == 0
