from __future__ import annotations

import pytest

from lakelog.spark.archive.progress import (
    Progress,
    ProgressConflictError,
    Standing,
    advance,
    archived_topic_ids,
    merge_ranges,
    property_name,
    read_progress,
    standing,
)
from lakelog.spark.planning import OffsetRange

AT_TEN = Progress({0: 10, 1: 20}, "q", 3)


def test_progress_survives_the_tables_property() -> None:
    properties = {property_name("id"): AT_TEN.to_text(), "other": "x"}

    assert read_progress(properties, "id") == AT_TEN
    assert read_progress(properties, "another id") == Progress()
    assert archived_topic_ids(properties) == {"id"}


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ({0: (10, 15)}, Standing.NEXT),
        ({0: (10, 15), 1: (20, 21)}, Standing.NEXT),
        ({2: (0, 5)}, Standing.NEXT),
        ({0: (10, 11), 2: (7, 9)}, Standing.NEXT),
        ({0: (5, 10)}, Standing.BEHIND),
        ({0: (0, 4), 1: (3, 20)}, Standing.BEHIND),
    ],
)
def test_what_a_batch_may_do(batch: dict[int, tuple[int, int]], expected: Standing) -> None:
    assert standing(AT_TEN, batch) is expected


@pytest.mark.parametrize(
    "batch",
    [
        {0: (11, 15)},
        {0: (5, 15)},
        {0: (10, 15), 1: (15, 20)},
        {0: (5, 10), 2: (0, 5)},
        {0: (9, 11), 1: (20, 21)},
    ],
)
def test_a_batch_that_leaves_a_gap_or_overlaps_is_refused(
    batch: dict[int, tuple[int, int]],
) -> None:
    with pytest.raises(ProgressConflictError, match="the table ends at"):
        standing(AT_TEN, batch)


def test_pieces_are_joined_and_must_join() -> None:
    pieces = [OffsetRange("t", 0, 5, 9), OffsetRange("t", 1, 0, 2), OffsetRange("t", 0, 2, 5)]

    assert merge_ranges(pieces) == {0: (2, 9), 1: (0, 2)}
    with pytest.raises(ProgressConflictError):
        merge_ranges([OffsetRange("t", 0, 0, 2), OffsetRange("t", 0, 3, 4)])


def test_advancing_moves_only_the_batchs_partitions() -> None:
    after = advance(AT_TEN, {1: (20, 25), 2: (0, 1)}, query_id="r", number=0)

    assert after == Progress({0: 10, 1: 25, 2: 1}, "r", 0)
