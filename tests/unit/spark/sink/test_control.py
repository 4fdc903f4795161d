from __future__ import annotations

import pytest

from lakelog.spark.sink.control import Batch, Control, Step, next_step
from lakelog.spark.sink.errors import (
    BatchOrderError,
    OldGenerationError,
    OtherQueryError,
    SinkError,
)

KNOWN = Control(query_id="q", run_id="r1", generation=2, next_batch=8, rows=5)


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


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 1, "query_id": "q"}', "x"])
def test_a_foreign_record_is_refused(text: str) -> None:
    with pytest.raises(SinkError, match="choose another 'sinkId'"):
        Control.from_text(1, text)


def test_a_record_of_a_newer_version_is_refused() -> None:
    with pytest.raises(SinkError, match="has version 2, and this lakelog reads version 1"):
        Control.from_text(1, '{"version": 2}')
