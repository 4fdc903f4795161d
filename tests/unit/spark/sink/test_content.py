from __future__ import annotations

import pyarrow as pa
import pytest

from lakelog.spark.sink.content import Content, Tally, content_of

ROWS = {
    "key": pa.array([b"k1", None, b"k3"]),
    "value": pa.array([b"a", b"b", None]),
    "headers": pa.array(
        [[{"key": "h", "value": b"x"}], None, []],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ),
    "timestamp": pa.array([5, None, 7], pa.timestamp("us", "UTC")),
}
BATCH = pa.RecordBatch.from_pydict(ROWS)


def changed(name: str, row: int, value: object) -> pa.RecordBatch:
    items = BATCH.column(name).to_pylist()
    items[row] = value
    column = pa.array(items, BATCH.column(name).type)
    return BATCH.set_column(BATCH.schema.names.index(name), name, column)


def test_the_order_and_the_division_of_rows_do_not_count() -> None:
    whole = content_of(BATCH, "t")
    parts = [content_of(BATCH.slice(start, 1), "t") for start in (2, 0, 1)]
    assert sum(parts, Content()) == whole
    assert whole.rows == 3
    assert content_of(BATCH.slice(0, 0), "t") == Content(0, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", b"k"),
        ("value", b"A"),
        ("headers", [{"key": "h", "value": b"y"}]),
        ("timestamp", 5000),
    ],
)
def test_a_change_of_any_column_changes_the_digest(name: str, value: object) -> None:
    found = content_of(changed(name, 0, value), "t")
    assert found.rows == 3
    assert found.digest != content_of(BATCH, "t").digest


def test_strings_are_their_bytes_and_a_topic_counts_in_either_form() -> None:
    text = BATCH.set_column(1, "value", BATCH.column("value").cast(pa.string()))
    column = BATCH.append_column("topic", pa.array(["t"] * 3))
    assert content_of(text, "t") == content_of(column, None) == content_of(BATCH, "t")
    assert content_of(column, "other") == content_of(BATCH, "other") != content_of(BATCH, "t")


def test_milliseconds_equal_a_timestamp() -> None:
    times = BATCH.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    assert content_of(BATCH.set_column(3, "timestamp", times), "t") == content_of(BATCH, "t")


def test_rows_are_counted_as_they_pass() -> None:
    tally = Tally("t")
    assert [*tally.counted([BATCH, BATCH])] == [BATCH, BATCH]
    assert tally.content == content_of(BATCH, "t") + content_of(BATCH, "t")


def test_the_content_survives_as_bytes() -> None:
    found = content_of(BATCH, "t")
    assert Content.from_bytes(found.to_bytes()) == found
    assert Content.from_bytes(b"") is None
    assert Content.from_bytes(b"\x02" + found.to_bytes()[1:]) is None
