from __future__ import annotations

from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.member import Member
from lakelog.coordinator.group.offsets.expiry import expired_offsets
from lakelog.coordinator.group.records import OffsetCommitValue
from lakelog.protocol.commit_sets import SINK_TOPIC
from lakelog.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_versioned

_RETENTION_MS = 1000


def _expired(
    group: ClassicGroup | None, now_ms: int, committed_ms: int = 0, expires_ms: int = -1
) -> list[str]:
    value = OffsetCommitValue(offset=1, commit_timestamp=committed_ms, expire_timestamp=expires_ms)
    offsets = {"orders": {0: value}, "clicks": {0: value}}
    keys = expired_offsets("g", group, offsets, now_ms, _RETENTION_MS)
    assert all((key.group, key.partition) == ("g", 0) for key in keys)
    return [key.topic for key in keys]


def _member(subscription: bytes) -> Member:
    return Member("m", None, "", "", 1, 1, (("range", subscription),))


def _group(state: GroupState, *, protocol_type: str = "consumer") -> ClassicGroup:
    group = ClassicGroup("g")
    subscription = ConsumerProtocolSubscription(topics=["orders"])
    group.add(_member(encode_versioned(subscription, 3)))
    group.protocol_type, group.protocol, group.state = protocol_type, "range", state
    return group


def test_without_a_group_the_retention_time_begins_with_the_commit() -> None:
    assert _expired(None, 1499, committed_ms=500) == []
    assert _expired(None, 1500, committed_ms=500) == ["orders", "clicks"]


def test_in_an_empty_group_it_begins_when_the_last_member_leaves() -> None:
    group = ClassicGroup("g")
    group.state_timestamp_ms = 700
    assert _expired(group, 1699, committed_ms=500) == []
    assert _expired(group, 1700, committed_ms=500) == ["orders", "clicks"]


def test_members_keep_the_offsets_of_the_topics_that_they_subscribe_to() -> None:
    """KAFKA-13636: the others expire although the group is in use."""
    assert _expired(_group(GroupState.STABLE), 5000) == ["clicks"]


def test_nothing_expires_while_the_subscriptions_are_unknown() -> None:
    assert _expired(_group(GroupState.PREPARING_REBALANCE), 5000) == []
    assert _expired(_group(GroupState.STABLE, protocol_type="connect"), 5000) == []
    malformed = _group(GroupState.STABLE)
    malformed.members["m"].protocols = (("range", b"\0"),)
    assert _expired(malformed, 5000) == []


def test_a_commit_may_name_its_own_time() -> None:
    assert _expired(None, 200, expires_ms=201) == []
    assert _expired(None, 201, expires_ms=201) == ["orders", "clicks"]
    assert _expired(None, 5000, expires_ms=5001) == []


def test_the_control_record_of_a_sink_never_expires() -> None:
    value = OffsetCommitValue(offset=8, commit_timestamp=0)
    offsets = {topic: {0: value} for topic in (SINK_TOPIC, "orders")}
    (key,) = expired_offsets("lk-sink-s", None, offsets, 10 * _RETENTION_MS, _RETENTION_MS)
    assert key.topic == "orders"
