from __future__ import annotations

import json

from lakelog.tables.archive.progress import Extent, Progress, read_progress
from lakelog.tables.archive.recording import record
from lakelog.tables.archive.refusals import RefusedRange
from lakelog.tables.archive.skipped import NAME, REFUSED, Skipped
from lakelog.tables.iceberg.address import TableAddress
from unit.tables.archive_table import TOPIC_ID, write_batch


def test_files_property_and_summary_are_of_one_commit(address: TableAddress) -> None:
    progress = Progress({0: Extent(0, 5, 1)}, "q", 1)
    paths = write_batch(address, 0, 3).paths
    with address.load().transaction() as transaction:
        lost, refused = [Skipped(0, 3, 4)], [RefusedRange(0, 4, 5)]
        record(transaction, TOPIC_ID, progress, paths, lost, refused)
    table = address.load()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    summary = snapshot.summary.additional_properties
    assert read_progress(table.properties, TOPIC_ID) == progress
    assert read_progress(summary, TOPIC_ID) == progress
    assert json.loads(summary[NAME]) == {"0": [[3, 4]]}
    assert json.loads(summary[REFUSED]) == {"0": [[4, 5]]}
    assert len(table.scan().to_arrow()) == 3
