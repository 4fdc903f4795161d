"""Dead letters of a batch whose rows were never committed.

The job committed the letters, and ended before it committed the rows. The next job reads the
records again. It must refuse them again, or they would be in both tables.
"""

from __future__ import annotations

from lakelog.tables.archive.dead_letters import find_letters, letters_address
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.history import agreed_progress
from lakelog.tables.archive.job import ArchiveJob
from lakelog.tables.archive.refusals import BAD_TIMESTAMP, OnBadRecord


def check_pending_letters(job: ArchiveJob) -> None:
    """Raise `SyncError` if the job would not write the pending letters as letters again."""
    refuses = OnBadRecord(job.errors) is OnBadRecord.DEAD_LETTER
    if refuses and not job.raw_timestamp_id:
        return
    pending = [
        f"{job.topic}-{row['partition']}@{row['offset']}"
        for row in _pending(job)
        if not refuses or str(row["reason"]).startswith(BAD_TIMESTAMP)
    ]
    if pending:
        raise SyncError(
            f"{'.'.join(letters_address(job.address).identifier)} has {len(pending)} dead letters, "
            f"from {pending[0]} on, of a batch whose rows {'.'.join(job.identifier)} does not "
            "have: a job ended between its two commits. Run it once with --errors dead-letter and "
            "without --null-timestamps, then with other options"
        )


def _pending(job: ArchiveJob) -> list[dict[str, object]]:
    letters = find_letters(job.address)
    if letters is None:
        return []
    ends = agreed_progress(job.address.load(), job.topic_id).ends
    columns = ("topic", "partition", "offset", "offsetLast", "reason")
    rows = letters.scan(selected_fields=columns).to_arrow().to_pylist()
    return [
        row
        for row in rows
        if row["topic"] == job.topic and row["offsetLast"] >= ends.get(row["partition"], 0)
    ]
