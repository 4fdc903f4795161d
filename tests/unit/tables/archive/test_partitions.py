"""Where the archive of a partition begins."""

from __future__ import annotations

from typing import cast

import pytest

from lakelog.tables.archive.partitions import first_extents
from lakelog.tables.archive.progress import Extent, Progress
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError
from unit.tables.archive_log import EPOCH, Log

TRIMMED = Log({0: 9, 1: 70, 2: 100}, starts={1: 50, 2: 60})
SOME = Progress({0: Extent(0, 9, EPOCH)})


def first(progress: Progress, *partitions: int, skip_lost: bool = False) -> dict[int, Extent]:
    client = cast("TopicClient", TRIMMED)
    return first_extents(client, "t", partitions, progress, skip_lost=skip_lost)


def test_a_new_archive_begins_where_the_log_begins() -> None:
    assert first(Progress(), 0, 1) == {0: Extent(0, 0, EPOCH), 1: Extent(50, 50, EPOCH)}


def test_partitions_of_the_archive_are_left_out() -> None:
    assert first(SOME, 0) == {}


def test_offsets_removed_before_an_added_partition_was_archived_are_a_loss() -> None:
    with pytest.raises(DataLossError, match=r"^t-1 \[0, 50\), t-2 \[0, 60\): .*--skip-lost"):
        first(SOME, 0, 2, 1)


def test_skip_lost_begins_an_added_partition_where_the_log_begins() -> None:
    found = first(SOME, 0, 1, skip_lost=True)
    assert found == {1: Extent(50, 50, EPOCH)}
