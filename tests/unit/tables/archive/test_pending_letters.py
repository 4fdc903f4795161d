"""Dead letters of a batch whose rows were never committed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.dead_letters import commit_letters
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.pending_letters import check_pending_letters
from lakelog.tables.archive.refusals import BAD_TIMESTAMP, OnBadRecord
from lakelog.tables.iceberg.address import TableAddress
from unit.tables.archive_table import TOPIC_ID
from unit.tables.letters import job_of, with_letters


def begin(address: TableAddress, reason: str) -> None:
    """Commit a batch with a letter at 1, then only the letters of the next one, at 6 and 7."""
    commit_batch(address, with_letters(address, 0, 5, (1, 1), reason=reason))
    ahead = with_letters(address, 5, 9, (6, 6), (7, 7), reason=reason, number=1)
    assert ahead.letters is not None
    commit_letters(ahead.letters, TOPIC_ID, "query", 1, ahead.extents)


@pytest.mark.parametrize("errors", [OnBadRecord.STOP, OnBadRecord.SKIP])
def test_a_job_that_would_not_write_letters_is_refused(
    address: TableAddress, errors: OnBadRecord
) -> None:
    begin(address, "bad")
    with pytest.raises(
        SyncError, match=r"2 dead letters, from orders-0@6 on.*--errors dead-letter"
    ):
        check_pending_letters(job_of(address, errors))
    check_pending_letters(job_of(address, OnBadRecord.DEAD_LETTER))


def test_a_job_with_a_column_for_timestamps_would_write_rows(address: TableAddress) -> None:
    begin(address, f"{BAD_TIMESTAMP}1 (milliseconds) is not possible")
    job = replace(job_of(address, OnBadRecord.DEAD_LETTER), raw_timestamp_id=9)
    with pytest.raises(SyncError, match="without --null-timestamps"):
        check_pending_letters(job)


def test_damaged_batches_are_letters_with_that_column_too(address: TableAddress) -> None:
    begin(address, "bad")
    check_pending_letters(replace(job_of(address, OnBadRecord.DEAD_LETTER), raw_timestamp_id=9))


def test_letters_below_the_end_of_the_table_are_settled(address: TableAddress) -> None:
    commit_batch(address, with_letters(address, 0, 5, (1, 1)))
    check_pending_letters(job_of(address, OnBadRecord.STOP))
