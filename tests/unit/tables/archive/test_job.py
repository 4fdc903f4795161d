from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lakelog.tables.archive.job import ArchiveJob
from lakelog.tables.archive.progress import Extent
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import ARROW_SCHEMA

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
