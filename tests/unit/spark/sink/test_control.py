from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from lakelog.spark.sink.control import (
    Batch,
    Content,
    Control,
    Step,
    Tally,
    check_repeated,
    content_of,
    next_step,
    unnamed_sink,
)
from lakelog.spark.sink.options import (
    BatchOrderError,
    OldGenerationError,
    OtherQueryError,
    Repeated,
    SinkError,
)

KNOWN = Control(query_id="q", run_id="r1", generation=2, next_batch=8, content=Content(5, 77))


def step(query: str, number: int, generation: int = 2, known: Control | None = KNOWN) -> Step:
    return next_step("s", known, Batch(query, "r2", number), generation)


def test_a_batch_is_written_once() -> None:
    assert step("q", 8) is Step.WRITE
    assert step("q", 7) is Step.SKIP


def test_the_first_batch_of_a_sink_has_any_number() -> None:
    assert step("q", 0, known=None) is Step.WRITE
    assert step("q", 17, known=None) is Step.WRITE


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (6, "batch 6 is behind sink 's', whose next batch is 8.*'sinkGeneration' to 3"),
        (9, "batch 9 is ahead of sink 's', whose next batch is 8.*'sinkGeneration' to 3"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(number: int, text: str) -> None:
    with pytest.raises(BatchOrderError, match=text):
        step("q", number)


@pytest.mark.parametrize("number", [0, 7, 8])
def test_another_query_is_refused_even_with_a_fitting_batch(number: int) -> None:
    with pytest.raises(OtherQueryError, match=r"belongs to query q.*'sinkGeneration' to 3"):
        step("other", number)


def test_a_generation_starts_a_new_count_and_ends_lower_ones() -> None:
    assert step("other", 0, generation=3) is Step.WRITE
    with pytest.raises(OldGenerationError, match="at generation 2, this query at 1"):
        step("q", 8, generation=1)


def test_the_record_survives_as_text() -> None:
    assert Control.from_text(KNOWN.next_batch, KNOWN.to_text()) == KNOWN


def test_a_record_without_a_digest_is_read() -> None:
    text = '{"version": 1, "query_id": "q", "run_id": "r1", "generation": 2, "rows": 5}'
    assert Control.from_text(8, text) == replace(KNOWN, content=Content(5, None))


SAME, COUNT, ANY = Repeated.SAME_ROWS, Repeated.SAME_COUNT, Repeated.ANY


@pytest.mark.parametrize(
    ("known", "repeated"),
    [
        (Content(5, 77), SAME),
        (Content(5, 1), COUNT),
        (Content(4, 77), ANY),
        (Content(5, None), SAME),
        (None, SAME),
    ],
)
def test_a_repeated_batch_of_the_same_rows_is_skipped(
    known: Content | None, repeated: Repeated
) -> None:
    check_repeated("s", 7, known, Content(5, 77), repeated, 2)


@pytest.mark.parametrize(
    ("known", "repeated", "text"),
    [
        (Content(1, 77), SAME, "with 1 row, and this checkpoint makes it of 5 rows"),
        (Content(5, 76), SAME, "with 5 rows, and this checkpoint makes it of other 5 rows"),
        (Content(4, None), SAME, "with 4 rows"),
        (Content(4, 77), COUNT, "with 4 rows"),
    ],
)
def test_a_repeated_batch_of_other_rows_is_refused(
    known: Content, repeated: Repeated, text: str
) -> None:
    with pytest.raises(BatchOrderError, match=f"batch 7 of sink 's' .*{text}.*Generation' to 3"):
        check_repeated("s", 7, known, Content(5, 77), repeated, 2)


def test_the_warning_of_an_unnamed_sink_names_its_query() -> None:
    assert "query q begins a new sink" in unnamed_sink("q")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 1, "query_id": "q"}', "x"])
def test_a_foreign_record_is_refused(text: str) -> None:
    with pytest.raises(SinkError, match="choose another 'sinkId'"):
        Control.from_text(1, text)


def test_a_record_of_a_newer_version_is_refused() -> None:
    with pytest.raises(SinkError, match="has version 2, and this lakelog reads version 1"):
        Control.from_text(1, '{"version": 2}')


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
