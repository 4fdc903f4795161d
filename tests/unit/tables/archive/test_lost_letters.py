"""Dead letters of records that the log has lost."""

from __future__ import annotations

from lakelog.client.epochs import EpochEnd
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.dead_letters import commit_letters, letters_address, letters_progress
from lakelog.tables.archive.history import agreed_progress
from lakelog.tables.archive.lost_letters import (
    LOST_TAG,
    cut_lost_letters,
    letters_ahead,
    refused_before,
)
from lakelog.tables.archive.progress import Extent
from lakelog.tables.archive.refusals import RefusedCount
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.divergence import Divergence
from unit.tables.archive_table import TOPIC_ID
from unit.tables.letters import job_of, letters, with_letters


def test_letters_of_no_batch_go_with_their_records(address: TableAddress) -> None:
    commit_batch(address, with_letters(address, 0, 5, (1, 1), leader_epoch=3))
    assert letters_ahead(job_of(address)) == {}
    ahead = with_letters(address, 5, 9, (5, 5), (7, 7), leader_epoch=3)
    assert ahead.letters is not None
    commit_letters(ahead.letters, TOPIC_ID, "q", 1, ahead.extents)
    found = letters_ahead(job_of(address))
    assert found == {0: Extent(0, 9, 3)}

    told: list[str] = []
    cut_lost_letters(job_of(address), found, [], told.append)
    assert (len(letters(address)), told) == (3, []), "the log has their records"
    cut = Divergence("orders", 0, 9, 3, EpochEnd(2, 6))
    cut_lost_letters(job_of(address), found, [cut], told.append)

    table = letters_address(address).load()
    assert [first for first, _, _ in letters(address)] == [1, 5]
    assert letters_progress(table, TOPIC_ID).extents == {0: Extent(0, 6, 2)}
    (tag,) = [name for name in table.metadata.refs if name.startswith(LOST_TAG)]
    assert tag in told[0]
    kept = table.scan(snapshot_id=table.metadata.refs[tag].snapshot_id).to_arrow()
    assert len(kept) == 3


def test_an_earlier_end_has_fewer_refused_offsets(address: TableAddress) -> None:
    commit_batch(address, with_letters(address, 0, 9, (1, 2), (7, 7)))
    progress = agreed_progress(address.load(), TOPIC_ID)
    assert refused_before(job_of(address), progress, {0: Extent(0, 5)}) == {0: RefusedCount(2, 0)}
    assert refused_before(job_of(address), progress, {}) == {0: RefusedCount(3, 0)}
