"""Committed offsets, and the order in which groups are evicted."""

from __future__ import annotations

import asyncio

from coordinator_members import commit_codes, committed, committed_one
from group_setup import Setup, in_virtual_time
from lakelog.base.memory_budget import Account, Share
from lakelog.coordinator.group.offsets import (
    PendingOffsets,
    ProbationaryGroup,
    in_order_of_eviction,
)
from lakelog.coordinator.group.records import OffsetCommitKey, OffsetCommitValue, OffsetRecord

ORDERS = ("orders", 0)


@in_virtual_time()
async def test_acknowledged_offsets_survive_a_restart(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7, ("clicks", 1): 8}, metadata="note")
    await commit_codes(setup, {ORDERS: 9}, group="other")
    await setup.restart()
    assert await committed(setup) == {ORDERS: 7, ("clicks", 1): 8}
    assert await committed(setup, "other") == {ORDERS: 9}
    assert (await committed_one(setup, "clicks", 1)).metadata == "note"


@in_virtual_time()
async def test_a_deleted_topics_offsets_are_deleted_with_it(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7, ("clicks", 0): 8})
    setup.coordinator.on_topics_deleted([("orders", b"o" * 16)])
    await asyncio.sleep(0.1)
    assert await committed(setup) == {("clicks", 0): 8}
    await setup.restart()
    assert await committed(setup) == {("clicks", 0): 8}


@in_virtual_time()
async def test_a_topic_of_the_same_name_begins_without_offsets(setup: Setup) -> None:
    """Even if the broker stopped before the old offsets were deleted."""
    await commit_codes(setup, {ORDERS: 7})
    setup.topics.topics["orders"] = (b"n" * 16, 8)
    await setup.restart()
    assert await committed(setup) == {}
    assert (await committed_one(setup, *ORDERS)).committed_offset == -1
    assert await commit_codes(setup, {ORDERS: 1}) == [0]
    setup.coordinator.on_topics_deleted([("orders", b"o" * 16)])
    await asyncio.sleep(0.1)
    assert await committed(setup) == {ORDERS: 1}, "they are not the old topic's"


_MINUTE_MS = 60_000


def _order(now_minutes: float, *probationary_groups: tuple[float, str]) -> list[str]:
    given = [
        ProbationaryGroup(int(minutes * _MINUTE_MS), name) for minutes, name in probationary_groups
    ]
    return [each.group_id for each in in_order_of_eviction(given, int(now_minutes * _MINUTE_MS))]


def test_the_minute_of_a_flood_is_evicted_first_its_newest_group_before_the_others() -> None:
    flood = [(5.1, "a"), (5.2, "b"), (5.3, "c")]
    assert _order(60, (1.0, "before"), *flood, (9.0, "after")) == [
        "c",
        "b",
        "a",
        "after",
        "before",
    ]


def test_a_group_is_kept_for_a_minute_after_the_minute_in_which_it_came() -> None:
    """A client that commits once a minute has shown by then that its group is in use."""
    assert _order(7.1, (5.0, "a"), (5.9, "b")) == []
    assert _order(7.2, (5.0, "a"), (5.9, "b")) == ["b", "a"]


def test_nothing_is_evicted_while_the_flood_lasts() -> None:
    """Older groups are not sacrificed for groups of the current minute."""
    assert _order(7.2, (1.0, "old"), (7.0, "x"), (7.1, "y")) == []


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
