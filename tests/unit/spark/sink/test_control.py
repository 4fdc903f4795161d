from __future__ import annotations

from dataclasses import replace

import pytest

from lakelog.spark.sink.content import Content
from lakelog.spark.sink.control import Batch, Control, Step, check_repeated, next_step, unnamed_sink
from lakelog.spark.sink.errors import (
    BatchOrderError,
    OldGenerationError,
    OtherQueryError,
    SinkError,
)
from lakelog.spark.sink.options import Repeated

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
