"""Offsets that the archive skipped, in the summaries of snapshots."""

from __future__ import annotations

import json

from lakelog.tables.archive.progress import Extent, Progress
from lakelog.tables.archive.skipped import NAME, Skipped, before_extents, merge, summary_entry


def test_adjacent_pieces_are_one_and_others_stay_apart() -> None:
    pieces = [Skipped(0, 10, 12), Skipped(1, 12, 13), Skipped(0, 0, 5), Skipped(0, 5, 10)]
    assert merge(pieces) == [Skipped(0, 0, 12), Skipped(1, 12, 13)]
    assert merge([Skipped(0, 0, 5), Skipped(0, 6, 7)]) == [Skipped(0, 0, 5), Skipped(0, 6, 7)]


def test_a_commit_records_its_pieces_by_partition() -> None:
    entry = summary_entry([Skipped(1, 4, 6), Skipped(0, 2, 4), Skipped(0, 0, 2)])
    assert json.loads(entry[NAME]) == {"0": [[0, 4]], "1": [[4, 6]]}
    assert summary_entry([]) == {}


def test_offsets_of_a_new_partition_that_retention_removed_were_skipped() -> None:
    known = Progress({0: Extent(3, 9, 1)})
    extents = {0: Extent(3, 9, 1), 1: Extent(7, 7, 1), 2: Extent(0, 0, 1)}
    assert before_extents(known, extents) == [Skipped(1, 0, 7)]


def test_a_new_archive_begins_where_the_log_begins_and_skips_nothing() -> None:
    assert before_extents(Progress({}), {0: Extent(7, 7, 1)}) == []
