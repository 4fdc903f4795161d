from __future__ import annotations

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.joined.times import first_at
from unit.tables.archive_table import write_batch
from unit.tables.joined.kit import archive_of, offsets


def test_the_first_archived_record_at_or_after_a_time(address: TableAddress) -> None:
    for number in range(2):
        commit_batch(address, write_batch(address, number * 10, number * 10 + 10, number))
    archive = archive_of(address)  # record n is of second n
    assert first_at(archive, offsets(0, 20), 0) == 0
    assert first_at(archive, offsets(0, 20), 12_001) == 13
    assert first_at(archive, offsets(0, 20), 19_001) is None
    assert first_at(archive, offsets(0, 13), 13_000) is None
