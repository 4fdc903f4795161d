"""ConsumerGroupDescribe: assignments, member types and groups that cannot be described."""

from __future__ import annotations

from group_setup import FakeTopics
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.consumer.group import ConsumerGroup, Draft
from lakelog.coordinator.group.consumer.member import ClassicSide, ConsumerMember
from lakelog.coordinator.group.queries import consumer_group_not_found, describe_consumer_group
from lakelog.protocol.groups import Assignment, DescribedConsumerGroup

ORDERS, CLICKS = b"o" * 16, b"c" * 16
TOPICS = {"orders": (ORDERS, 8), "clicks": (CLICKS, 2)}


def _described(
    *members: ConsumerMember, topics: dict[str, tuple[bytes, int]]
) -> DescribedConsumerGroup:
    draft = Draft(ConsumerGroup("readers"))
    draft.put_epoch(3, 0)
    for member in members:
        draft.put_member(member)
        draft.put_assignment(member)
        draft.put_target(member.member_id, {ORDERS: frozenset({2, 0})})
    draft.put_target_epoch(2, 0)
    return describe_consumer_group(draft.group, FakeTopics(topics), "uniform")


def _partitions(assignment: Assignment) -> dict[str, list[int]]:
    return {each.topic_name: each.partitions for each in assignment.topic_partitions}


def test_a_member_shows_partitions_to_revoke_as_its_own() -> None:
    """No other member may read them yet."""
    member = ConsumerMember(
        "m", member_epoch=2, assigned={ORDERS: {4: 1, 1: 2}}, pending={CLICKS: {0: 1}}
    )
    (shown,) = _described(member, topics=TOPICS).members
    assert _partitions(shown.assignment) == {"orders": [1, 4], "clicks": [0]}
    assert _partitions(shown.target_assignment) == {"orders": [0, 2]}


def test_deleted_topics_are_not_shown() -> None:
    member = ConsumerMember("m", assigned={ORDERS: {0: 1}, CLICKS: {1: 1}})
    (shown,) = _described(member, topics={"clicks": (CLICKS, 2)}).members
    assert _partitions(shown.assignment) == {"clicks": [1]}
    assert _partitions(shown.target_assignment) == {}


def test_members_show_their_protocol_and_subscription() -> None:
    classic = ConsumerMember(
        "a", classic=ClassicSide(1000, (("range", b""),)), topics=frozenset({"orders", "clicks"})
    )
    modern = ConsumerMember("b", regex="or.*", instance_id="i", rack_id="r")
    first, second = _described(classic, modern, topics=TOPICS).members
    assert (first.member_type, second.member_type) == (0, 1)
    assert first.subscribed_topic_names == ["clicks", "orders"]
    assert (second.subscribed_topic_regex, second.instance_id) == ("or.*", "i")
    assert second.rack_id == "r"


def test_a_group_shows_both_epochs_and_the_default_assignor() -> None:
    group = _described(ConsumerMember("m"), topics=TOPICS)
    assert (group.group_epoch, group.assignment_epoch) == (3, 2)
    assert (group.group_state, group.assignor_name) == ("Assigning", "uniform")
    chosen = _described(ConsumerMember("m", assignor="range"), topics=TOPICS)
    assert chosen.assignor_name == "range"


def test_the_message_distinguishes_a_classic_group_from_an_unknown_one() -> None:
    classic = consumer_group_not_found("a", is_classic=True)
    unknown = consumer_group_not_found("a", is_classic=False)
    assert classic.error_code == unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert classic.error_message == "Group a is not a consumer group."
    assert unknown.error_message == "Group a not found."
