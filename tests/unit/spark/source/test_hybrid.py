from __future__ import annotations

from typing import cast

from lakelog.spark.source.hybrid import planned
from lakelog.tables.hybrid.files import PlannedRange
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.offsets import OffsetRange


def test_a_client_without_tables_leaves_ranges_as_they_are() -> None:
    log = cast("TopicClient", None)
    assert planned(log, [OffsetRange("t", 0, 0, 5)]) == [PlannedRange(OffsetRange("t", 0, 0, 5))]
