from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakelog.client.consumer.fetch import Batch
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from lakelog.tables.topic.errors import TopicGoneError
from lakelog.tables.topic.offsets import OffsetRange
from lakelog.tables.typed.rows import TypedRows, sampled_shape, untyped
from lakelog.tables.typed.shapes import extended, shape_of

VALUE = pa.field("value", pa.large_binary())
DATA = pa.field("data", extended(pa.struct([]), shape_of([{"a": 1}])))
RESCUED = pa.field("rescued", pa.large_string())
SCHEMA = pa.schema([VALUE, DATA, RESCUED])


def batch(*values: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, VALUE.type)], schema=pa.schema([VALUE]))


def test_rows_get_the_typed_columns() -> None:
    rows = TypedRows(SCHEMA)
    found = rows.complete(batch(b'{"a": 1}', None, b'{"b": 2}'))
    assert found.schema == SCHEMA
    assert found.column("data").to_pylist() == [{"a": 1}, None, {"a": None}]
    assert found.column("rescued").to_pylist() == [None, None, '{"$.b":2}']
    assert untyped(SCHEMA).names == ["value"]


def test_a_schema_without_them_changes_nothing() -> None:
    plain = batch(b"x")
    assert TypedRows(pa.schema([VALUE])).complete(plain) is plain


def test_fields_that_did_not_fit_are_known_afterwards() -> None:
    rows = TypedRows(SCHEMA)
    rows.complete(batch(b'{"a": 1}', b'{"a": "x", "b": 2}'))
    rows.complete(batch(*[b'{"c": true}'] * 2000, b'{"late": 1}'))
    (unknown,) = rows.unknown
    known = extended(DATA.type, unknown)
    assert [(each.name, each.type) for each in known] == [
        ("a", pa.int64()),
        ("b", pa.int64()),
        ("c", pa.bool_()),
    ]


class Records:
    """A log whose record at offset n has the field `f<n>`, each in a batch of about 10 KB."""

    def __init__(self) -> None:
        self.read: list[tuple[int, int]] = []

    def batches(self, wanted: OffsetRange) -> Iterator[Batch]:
        if wanted.partition == 9:
            raise TopicGoneError("gone")
        for offset in range(wanted.start, wanted.end):
            self.read.append((wanted.partition, offset))
            builder = BatchBuilder()
            builder.append(2**62, None, b'{"f%d": "%s"}' % (offset, b"x" * 10_000))
            data = builder.build(base_offset=offset)
            yield read_header(data), memoryview(data)


def test_the_first_values_of_each_range_show_its_fields() -> None:
    log = Records()
    shape = sampled_shape(log, [OffsetRange("t", 0, 0, 3), OffsetRange("t", 1, 100, 5000)])
    assert {"f0", "f1", "f2", "f100", "f106"} <= shape.fields.keys()
    assert max(offset for _, offset in log.read) < 110, "a sample has about 64 KiB"


def test_only_the_largest_ranges_are_sampled_and_lost_ones_have_no_sample() -> None:
    log = Records()
    ranges = [OffsetRange("t", p, p, p + 1 + (p == 20)) for p in range(30) if p != 9]
    sampled_shape(log, [*ranges, OffsetRange("t", 9, 0, 100)])
    read = {partition for partition, _ in log.read}
    assert len(read) == 15
    assert 20 in read
