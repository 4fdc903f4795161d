from __future__ import annotations

import pytest

from consumer_members import GROUP, Consumer, settle, snapshot
from group_setup import Setup, in_virtual_time
from lakelog.coordinator.group.config import ConsumerConfig
from lakelog.coordinator.group.consumer.group import ConsumerGroup, Draft, ResolvedRegex
from lakelog.coordinator.group.consumer.member import ConsumerMember
from lakelog.coordinator.group.records import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRecord,
)

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)


@in_virtual_time(consumer=AT_ONCE)
async def test_state_survives_a_restart_exactly(setup: Setup) -> None:
    one = Consumer(setup, "one", topics=["orders"], instance_id="a")
    two = Consumer(setup, "two", topics=None, regex="cl.*", assignor="range")
    three = Consumer(setup, "three")
    await settle(one, two)
    await three.beat()
    await one.ask()
    before = snapshot(setup)
    assert before[GROUP]["regexes"]
    await setup.restart()
    assert snapshot(setup) == before
    await settle(one, two, three)
    assert one.of() | three.of() == set(range(8))


ORDERS = b"o" * 16


def _populated() -> Draft:
    draft = Draft(ConsumerGroup("readers"))
    draft.put_epoch(1, 77)
    draft.put_regex("or.*", ResolvedRegex(frozenset({"orders"}), 5, 1000))
    member = ConsumerMember(
        "m",
        member_epoch=1,
        instance_id="i",
        topics=frozenset({"orders"}),
        regex="or.*",
        assigned={ORDERS: {0: 1, 1: 1}},
    )
    draft.put_member(member)
    draft.put_assignment(member)
    draft.put_target("m", {ORDERS: frozenset({0, 1})})
    draft.put_target_epoch(1, 1000)
    return draft


def _replayed(draft: Draft, count: int) -> ConsumerGroup:
    group = ConsumerGroup("readers")
    for record in draft.records[:count]:
        assert isinstance(record, ConsumerGroupRecord)
        group.replay(record)
    return group


def _is_empty(group: ConsumerGroup) -> bool:
    return not (group.members or group.target or group.owners or group.regexes)


def test_a_draft_without_records_is_the_committed_group() -> None:
    """Most heartbeats change nothing and do not pay for a copy."""
    live = ConsumerGroup("readers")
    draft = Draft(live)
    assert draft.group is live
    assert draft.records == []


def test_the_committed_group_does_not_see_records_before_their_commit() -> None:
    draft = _populated()
    assert draft.group.epoch == draft.group.assignment_epoch == 1
    assert draft.group.owners == {(ORDERS, 0): "m", (ORDERS, 1): "m"}
    assert draft.live.epoch == 0
    assert _is_empty(draft.live)


def test_a_replay_of_the_records_restores_the_draft() -> None:
    draft = _populated()
    restored, expected = vars(_replayed(draft, len(draft.records))), vars(draft.group)
    assert restored == expected


def test_records_that_retire_a_classic_group_are_written_first() -> None:
    first = ConsumerGroupRecord(ConsumerGroupPartitionMetadataKey(group_id="readers"), None)
    draft = Draft(ConsumerGroup("readers"), records=[first])
    draft.put_epoch(1, 0)
    assert draft.records[0] is first


def test_a_removed_member_owns_nothing_after_any_prefix_of_its_tombstones() -> None:
    draft = _populated()
    before = len(draft.records)
    draft.remove_member("m")
    assert _replayed(draft, before).owners
    for count in range(before + 1, len(draft.records) + 1):
        group = _replayed(draft, count)
        assert set(group.owners.values()) <= set(group.members)
    assert "m" not in draft.group.members
    assert draft.group.static_member("i") is None


@pytest.mark.parametrize("is_older", [False, True])
def test_a_deleted_group_leaves_no_record_in_the_compacted_log(is_older: bool) -> None:
    draft = _populated()
    if is_older:
        key = ConsumerGroupPartitionMetadataKey(group_id="readers")
        draft.add(key, ConsumerGroupPartitionMetadataValue(topics=[]))
    draft.delete_group()
    newest = {(type(key), *vars_of(key)): value for key, value in draft.records}
    assert set(newest.values()) == {None}
    assert _is_empty(draft.group)


def vars_of(key: object) -> tuple[str, ...]:
    names = ("group_id", "member_id", "regular_expression")
    return tuple(getattr(key, name, "") for name in names)


def test_epochs_never_go_back() -> None:
    draft = _populated()
    with pytest.raises(AssertionError):
        draft.put_epoch(0, 77)
    with pytest.raises(AssertionError):
        draft.put_target_epoch(2, 1000)
