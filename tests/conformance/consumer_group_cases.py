"""Bad requests about groups of KIP-848, and about deleting groups and offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.case import Case, World, made

GROUP = "conformance-consumer"
NEW_ID = "AAAAAAAAAAAAAAAAAAAAAg"
Build = Callable[[World], Any]


def _beat(group: str = GROUP, **changes: Any) -> Build:
    """From the world's member, unless `changes` say otherwise."""

    def build(world: World) -> Any:
        member, epoch = world.consumer_member
        fields = {"group_id": group, "member_id": member, "member_epoch": epoch} | changes
        return made("groups", "ConsumerGroupHeartbeatRequest", **fields)

    return build


def _join(group: str = "conformance-joining", **changes: Any) -> Build:
    fields = {
        "member_id": NEW_ID,
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["conformance"],
        "topic_partitions": [],
    }
    return _beat(group, **(fields | changes))


def _owning(partition: int) -> Build:
    def build(world: World) -> Any:
        owned = made(
            "groups",
            "MemberPartitions",
            topic_id=world.topic_id,
            partitions=[partition],
        )
        return _beat(topic_partitions=[owned], member_epoch=world.consumer_member[1] - 1)(world)

    return build


HEARTBEAT = [
    *(
        Case("ConsumerGroupHeartbeat", name, build)
        for name, build in (
            ("accepted", _beat()),
            ("empty group", _beat("")),
            ("blank group", _beat("  ")),
            ("group of control characters", _beat("\t\x01")),
            ("group of a wide space", _join("\u3000")),
            ("blank member", _beat(member_id=" ")),
            ("blank instance", _join(instance_id=" ")),
            ("blank rack", _join(rack_id="\n")),
            ("unknown group", _beat("no-such-group")),
            ("unknown member", _beat(member_id=NEW_ID)),
            ("epoch from the future", _beat(member_epoch=999)),
            ("older epoch", lambda w: _beat(member_epoch=w.consumer_member[1] - 2)(w)),
            ("previous epoch with partitions that it does not own", _owning(99)),
            ("leaving of an unknown member", _beat(member_id=NEW_ID, member_epoch=-1)),
            ("leaving of an unknown group", _beat("no-such-group", member_epoch=-1)),
            ("epoch below all", _beat(member_epoch=-3)),
            ("static leaving without an instance", _beat(member_epoch=-2)),
            ("empty instance", _join(instance_id="")),
            ("empty rack", _join(rack_id="")),
            ("joining without a timeout", _join(rebalance_timeout_ms=-1)),
            ("joining without a subscription", _join(subscribed_topic_names=None)),
            ("joining without owned partitions", _join(topic_partitions=None)),
            ("unknown assignor", _join(server_assignor="clever")),
            ("empty assignor", _join(server_assignor="")),
            ("unknown assignor of a member", _beat(server_assignor="clever")),
            ("group of the classic protocol with members", _join("conformance-static")),
        )
    ),
    Case("ConsumerGroupHeartbeat", "no member id", _join(member_id=""), (1, 1)),
    Case(
        "ConsumerGroupHeartbeat",
        "expression that is none",
        _join(subscribed_topic_names=None, subscribed_topic_regex="("),
        (1, 1),
    ),
]


def _describe(*groups: str) -> Build:
    return lambda world: made("groups", "ConsumerGroupDescribeRequest", group_ids=list(groups))


DESCRIBE = [
    Case("ConsumerGroupDescribe", name, build)
    for name, build in (
        ("accepted", _describe(GROUP)),
        ("none", _describe()),
        ("unknown group", _describe("no-such-group")),
        ("empty name", _describe("")),
        ("group of the classic protocol", _describe("conformance-group")),
    )
]


def _delete(*groups: str) -> Build:
    return lambda world: made("groups", "DeleteGroupsRequest", groups_names=list(groups))


def _forget(group: str, topic: str = "conformance", partition: int = 0) -> Build:
    def build(world: World) -> Any:
        entry = made("offsets", "OffsetDeleteRequestPartition", partition_index=partition)
        topics = made("offsets", "OffsetDeleteRequestTopic", name=topic, partitions=[entry])
        return made("offsets", "OffsetDeleteRequest", group_id=group, topics=[topics])

    return build


DELETE = [
    *(
        Case("DeleteGroups", name, build)
        for name, build in (
            ("none", _delete()),
            ("unknown group", _delete("no-such-group")),
            ("empty name", _delete("")),
            ("group with members", _delete("conformance-group")),
            ("consumer group with members", _delete(GROUP)),
            ("a group twice", _delete("no-such-group", "no-such-group")),
        )
    ),
    *(
        Case("OffsetDelete", name, build)
        for name, build in (
            ("unknown group", _forget("no-such-group")),
            ("empty group", _forget("")),
            ("topic of a consumer group", _forget(GROUP)),
            ("topic of a classic group", _forget("conformance-group")),
            ("unknown topic", _forget("conformance-empty", "no-such-topic")),
            ("unknown partition", _forget("conformance-empty", partition=9)),
        )
    ),
    *(
        Case(api, f"consumer group: {name}", build, needs="ConsumerGroupHeartbeat")
        for api, name, build in (
            (
                "Heartbeat",
                "a classic heartbeat",
                lambda w: made(
                    "groups",
                    "HeartbeatRequest",
                    group_id=GROUP,
                    member_id=w.consumer_member[0],
                    generation_id=w.consumer_member[1],
                ),
            ),
            (
                "DescribeGroups",
                "described as a classic one",
                lambda w: made("groups", "DescribeGroupsRequest", groups=[GROUP]),
            ),
        )
    ),
]

CASES = [*HEARTBEAT, *DESCRIBE, *DELETE]
