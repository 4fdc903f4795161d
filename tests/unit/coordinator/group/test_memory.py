"""Estimates of stored generations and offsets; `test_state_budget.py` measures their sums."""

from __future__ import annotations

import pytest

from lakelog.coordinator.group.memory import offset_bytes, pending_offset_bytes, stored_bytes
from lakelog.coordinator.group.records.classic import GroupMetadataValue, MemberMetadata
from lakelog.coordinator.group.records.offset import OffsetCommitKey, OffsetCommitValue

KEY = OffsetCommitKey(group="readers", topic="orders", partition=0)


def _generation(*members: MemberMetadata) -> GroupMetadataValue:
    return GroupMetadataValue(members=list(members))


def test_a_tombstone_takes_nothing() -> None:
    """A deleted group or offset has to return all memory that was counted for it."""
    assert stored_bytes(None) == 0
    assert offset_bytes(KEY, None) == 0


def test_each_member_counts_with_its_assignment() -> None:
    member = MemberMetadata(member_id="m", assignment=bytes(1000))
    one, two = (stored_bytes(_generation(*[member] * count)) for count in (1, 2))
    assert two - one == one - stored_bytes(_generation()) > 1000


def test_a_subscription_is_not_counted_twice() -> None:
    """`Member.memory` counts it."""
    small, large = (MemberMetadata(member_id="m", subscription=bytes(n)) for n in (1, 10_000))
    assert stored_bytes(_generation(small)) == stored_bytes(_generation(large))


@pytest.mark.parametrize(("text", "more"), [("x" * 100, 100), ("ä" * 100, 400)])
def test_metadata_of_an_offset_counts_by_its_widest_character(text: str, more: int) -> None:
    plain = offset_bytes(KEY, OffsetCommitValue(offset=1, metadata=""))
    assert offset_bytes(KEY, OffsetCommitValue(offset=1, metadata=text)) - plain == more


def test_an_offset_of_an_open_transaction_takes_more_than_a_committed_one() -> None:
    value = OffsetCommitValue(offset=1, metadata="")
    assert pending_offset_bytes(KEY, value) > offset_bytes(KEY, value)


def test_a_pending_tombstone_takes_memory_until_its_transaction_ends() -> None:
    assert pending_offset_bytes(KEY, None) > 0
