"""Where the archive of a partition begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import cast

import pytest

from lakelog.client.offsets import OffsetAt
from lakelog.tables.archive.planner import BatchPlanner, first_extents
from lakelog.tables.archive.progress import ArchiveJob, Extent, Progress, merge_ranges
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError, LogDivergedError
from lakelog.tables.topic.offsets import TopicPartition
from unit.tables.archive_log import EPOCH, Log


def planner(ends: dict[int, int], log: Log, *, skip_lost: bool = False) -> BatchPlanner:
    """The planner of a table that has `ends` archived, in the epoch before that of the log."""
    job = ArchiveJob(
        bootstrap="b:1",
        topic="t",
        topic_id="id",
        catalog={},
        identifier=("lakelog", "t"),
        location="",
        batch_bytes=1000,
        tasks=2,
        raw_timestamp_id=0,
        skip_lost=skip_lost,
        uuid="",
        extents={p: Extent(0, end, EPOCH - 1) for p, end in ends.items()},
    )
    return BatchPlanner(job, cast("TopicClient", log))


def next_ranges(
    ends: dict[int, int], log: Log, *, skip_lost: bool = False
) -> dict[int, Extent] | None:
    """Return the first batch, or `None` if nothing is new."""
    plan = planner(ends, log, skip_lost=skip_lost)
    begin = plan.table_end()
    end = plan.batch_end(begin, None)
    if end is begin:
        return None
    return merge_ranges(each for ranges in plan.tasks(begin, end) for each in ranges)


def test_a_batch_goes_from_the_tables_ends_to_the_logs() -> None:
    found = next_ranges({0: 5, 1: 7}, Log({0: 9, 1: 7, 2: 3}))

    assert found == {0: Extent(5, 9, EPOCH), 2: Extent(0, 3, EPOCH)}


def test_nothing_new_makes_no_batch() -> None:
    assert next_ranges({0: 5, 1: 7}, Log({0: 5, 1: 7})) is None


def test_a_partition_without_records_is_in_the_first_batch_that_sees_it() -> None:
    assert next_ranges({0: 5}, Log({0: 5, 1: 0})) == {1: Extent(0, 0, EPOCH)}
    assert next_ranges({0: 5}, Log({0: 6, 1: 0})) == {
        0: Extent(5, 6, EPOCH),
        1: Extent(0, 0, EPOCH),
    }


def test_a_partition_that_was_trimmed_before_it_was_seen_is_a_loss() -> None:
    log = Log({0: 5, 1: 100}, starts={1: 50})

    with pytest.raises(DataLossError, match=r"t-1 \[0, 50\): retention or"):
        next_ranges({0: 5}, log)
    assert next_ranges({0: 5}, log, skip_lost=True) == {1: Extent(50, 100, EPOCH)}


def test_the_next_batch_is_checked_with_the_epochs_of_the_last() -> None:
    plan = planner({0: 5}, log := Log({0: 9}))
    end = plan.batch_end(plan.table_end(), None)
    assert end.epochs == {"t": {0: EPOCH}}

    log.ends, log.earlier = {0: 20}, {0: 8}
    with pytest.raises(LogDivergedError, match="t-0 was cut"):
        plan.batch_end(end, None)


def test_a_log_that_is_cut_and_grows_while_its_end_is_asked_for_has_no_batch() -> None:
    class Cut(Log):
        def latest_places(
            self, partitions: Iterable[TopicPartition]
        ) -> dict[TopicPartition, OffsetAt]:
            self.ends, self.earlier = {0: 130}, {0: 60}
            return super().latest_places(partitions)

    with pytest.raises(LogDivergedError, match=r"t-0 was cut.* ends at 60"):
        next_ranges({0: 100}, Cut({0: 100}))


@pytest.mark.parametrize("ends", [{0: 9, 1: 6}, {0: 9, 1: 100}])
@pytest.mark.parametrize("skip_lost", [False, True])
def test_a_log_that_lost_archived_records_is_not_idle(
    ends: dict[int, int], skip_lost: bool
) -> None:
    """With any records in their place: only the job that started the query can settle it."""
    with pytest.raises(LogDivergedError, match=r"t-1 was cut.*offset 7 in leader epoch 3.* at 6"):
        next_ranges({0: 5, 1: 7}, Log(ends, earlier={1: 6}), skip_lost=skip_lost)


def test_a_small_batch_has_fewer_files_than_the_cluster_has_tasks() -> None:
    def files(file_bytes: int) -> int:
        plan = planner({0: 0, 1: 0}, Log({0: 50, 1: 50}))
        plan = replace(plan, job=replace(plan.job, tasks=8, file_bytes=file_bytes))
        begin = plan.table_end()
        return len(plan.tasks(begin, plan.batch_end(begin, None)))

    # The records of the log have a byte each.
    assert [files(size) for size in (1, 30, 60, 1000)] == [8, 4, 2, 1]


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
