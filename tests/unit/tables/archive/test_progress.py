from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lakelog.tables.archive.progress import (
    UNKNOWN,
    ArchiveJob,
    Extent,
    Progress,
    ProgressConflictError,
    ProgressFormatError,
    Standing,
    advance,
    archived_topic_ids,
    merge_ranges,
    property_name,
    read_progress,
    standing,
)
from lakelog.tables.archive.refusals import RefusedCount
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from lakelog.tables.topic.offsets import OffsetRange

AT_TEN = Progress({0: Extent(0, 10, 4), 1: Extent(5, 20, 2)}, "q", 3)


def test_progress_survives_the_tables_property() -> None:
    properties = {property_name("id"): AT_TEN.to_text(), "other": "x"}

    assert read_progress(properties, "id") == AT_TEN
    assert read_progress(properties, "another id") == Progress()
    assert archived_topic_ids(properties) == {"id"}
    assert AT_TEN.ends == {0: 10, 1: 20}
    assert AT_TEN.leader_epochs == {0: 4, 1: 2}


def test_progress_of_version_1_has_no_starts_and_no_epochs() -> None:
    text = '{"ends": {"0": 10, "1": 0}, "query_id": "q", "batch": 3}'

    found = Progress.from_text(text)

    assert found == Progress({0: Extent(UNKNOWN, 10), 1: Extent(UNKNOWN, 0)}, "q", 3)
    assert found.leader_epochs == {}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"version": 3, "query_id": "q", "batch": 3}', "upgrade lakelog"),
        ('{"version": 2, "partitions": {"0": [1, 2]}, "query_id": "q", "batch": 3}', "restore"),
        ('{"version": 2, "partitions": {"0": 1}, "query_id": "q", "batch": 3}', "restore"),
        ('{"query_id": "q", "batch": 3}', "restore"),
        ("[]", "restore"),
        ("{", "restore"),
    ],
)
def test_progress_that_cannot_be_read_is_refused(text: str, what: str) -> None:
    with pytest.raises(ProgressFormatError, match=f"(?i){what}"):
        Progress.from_text(text)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ({0: (10, 15)}, Standing.NEXT),
        ({0: (10, 15), 1: (20, 21)}, Standing.NEXT),
        ({2: (0, 5)}, Standing.NEXT),
        ({2: (0, 0)}, Standing.NEXT),
        ({0: (10, 11), 2: (7, 9)}, Standing.NEXT),
        ({0: (5, 10)}, Standing.BEHIND),
        ({0: (0, 4), 1: (3, 20)}, Standing.BEHIND),
    ],
)
def test_the_standing_of_a_batch_follows_from_its_offsets(
    batch: dict[int, tuple[int, int]], expected: Standing
) -> None:
    assert standing(AT_TEN, extents(batch)) is expected


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
        standing(AT_TEN, extents(batch))


def test_pieces_are_joined_and_must_join() -> None:
    pieces = [
        OffsetRange("t", 0, 5, 9, leader_epoch=3),
        OffsetRange("t", 1, 4, 4, leader_epoch=6),
        OffsetRange("t", 0, 2, 5, leader_epoch=3),
    ]

    assert merge_ranges(pieces) == {0: Extent(2, 9, 3), 1: Extent(4, 4, 6)}
    with pytest.raises(ProgressConflictError):
        merge_ranges([OffsetRange("t", 0, 0, 2), OffsetRange("t", 0, 3, 4)])


def test_advancing_moves_only_the_batchs_partitions() -> None:
    batch = {1: Extent(20, 25, 7), 2: Extent(0, 1, 7)}

    after = advance(AT_TEN, batch, query_id="r", number=0)

    expected = {0: Extent(0, 10, 4), 1: Extent(5, 25, 7), 2: Extent(0, 1, 7)}
    assert after == Progress(expected, "r", 0)


def extents(batch: dict[int, tuple[int, int]]) -> dict[int, Extent]:
    return {partition: Extent(start, end) for partition, (start, end) in batch.items()}


def test_refused_offsets_are_counted_in_the_progress() -> None:
    """A table without any has the same text as before there were such counts."""
    assert "refused" not in AT_TEN.to_text()
    refused = {0: RefusedCount(2, 1)}
    batch = {0: Extent(10, 15, 4)}
    once = advance(AT_TEN, batch, query_id="q", number=4, refused=refused)
    again = advance(once, {0: Extent(15, 16, 4)}, query_id="q", number=5, refused=refused)
    assert again.refused == {0: RefusedCount(4, 2)}
    assert Progress.from_text(again.to_text()) == again


def test_rewinds_are_kept_and_are_absent_from_texts_without_any() -> None:
    progress = Progress({0: Extent(0, 5, 1)}, "q", 3, rewinds=2)
    assert Progress.from_text(progress.to_text()) == progress
    assert advance(progress, {0: Extent(5, 6, 1)}, query_id="q", number=4).rewinds == 2
    assert "rewinds" not in Progress({0: Extent(0, 5, 1)}, "q", 3).to_text()


JOB = ArchiveJob(
    bootstrap="b:1",
    topic="orders",
    topic_id="id",
    catalog={"type": "sql"},
    identifier=("lakelog", "orders"),
    location="file:///house",
    batch_bytes=1000,
    tasks=2,
    skip_lost=True,
    raw_timestamp_id=0,
    uuid="u",
    extents={0: Extent(0, 5, 3), 11: Extent(2, 2)},
)


def test_a_job_survives_the_option_that_carries_it() -> None:
    """With whole numbers as partitions, and with equal types: it is compared and used as a key."""
    found = ArchiveJob.from_json(JOB.to_json())
    assert found == JOB
    assert found.extents[0].leader_epoch == 3
    assert found.address == TableAddress({"type": "sql"}, ("lakelog", "orders"), "u")


@pytest.mark.parametrize("missing", ["identifier", "extents"])
def test_a_text_of_another_shape_is_an_error(missing: str) -> None:
    value = json.loads(JOB.to_json())
    del value[missing]
    with pytest.raises(KeyError, match=missing):
        ArchiveJob.from_json(json.dumps(value))
    with pytest.raises(ValueError, match="Expecting value"):
        ArchiveJob.from_json("")


def test_timestamps_may_be_null_only_in_a_table_with_the_column_for_their_numbers() -> None:
    assert JOB.schema == ARROW_SCHEMA
    assert not JOB.schema.field("timestamp").nullable

    schema = replace(JOB, raw_timestamp_id=12).schema
    assert schema.field("timestamp").nullable
    assert schema.field("rawTimestamp").metadata == {b"PARQUET:field_id": b"12"}
