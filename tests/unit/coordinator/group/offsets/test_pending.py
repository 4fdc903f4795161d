from __future__ import annotations

from lakelog.base.memory_budget import Account, Share
from lakelog.coordinator.group.offsets.pending import PendingOffsets
from lakelog.coordinator.group.records.offset import (
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
)

_KEY = OffsetCommitKey(group="g", topic="orders", partition=0)


def _pending() -> tuple[PendingOffsets, Share]:
    share = Share()
    return PendingOffsets(Account(share)), share


def _record(offset: int) -> OffsetRecord:
    return OffsetRecord(_KEY, OffsetCommitValue(offset=offset))


def _ended(pending: PendingOffsets, producer_id: int, *, commit: bool = True) -> list[int]:
    records = pending.end(producer_id, commit=commit)
    return [record.value.offset for record in records if record.value is not None]


def test_an_offset_is_pending_until_its_transaction_ends() -> None:
    pending, share = _pending()
    pending.add(_record(5), producer_id=1)
    assert pending.is_pending("g", "orders", 0)
    assert "g" in pending
    assert _ended(pending, 1) == [5]
    assert not pending.is_pending("g", "orders", 0)
    assert "g" not in pending
    assert share.used == 0


def test_an_aborted_transaction_applies_nothing() -> None:
    pending, share = _pending()
    pending.add(_record(5), producer_id=1)
    assert _ended(pending, 1, commit=False) == []
    assert share.used == 0


def test_the_newest_offset_of_a_transaction_counts() -> None:
    pending, share = _pending()
    pending.add(_record(5), producer_id=1)
    once = share.used
    pending.add(_record(3), producer_id=1)
    assert share.used == once
    assert _ended(pending, 1) == [3]


def test_a_later_commit_without_a_transaction_stays() -> None:
    pending, _ = _pending()
    pending.add(_record(5), producer_id=1)
    pending.overtake(_KEY)
    assert _ended(pending, 1) == []


def test_of_two_transactions_the_offset_that_was_written_last_stays() -> None:
    """Whichever ends first: the order in the log decides, as it does after a restart."""
    for first, second, expected in ((1, 2, [[5], [7]]), (2, 1, [[7], []])):
        pending, _ = _pending()
        pending.add(_record(5), producer_id=1)
        pending.add(_record(7), producer_id=2)
        assert [_ended(pending, first), _ended(pending, second)] == expected
