"""Bad requests about groups that speak the classic protocol, and about offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.case import Case, World
from conformance.world import join_request
from lakelog.protocol.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

UNKNOWN_ID = b"\x11" * 16
Build = Callable[[World], Any]


def _join(group: str = "conformance-join", member: str = "", **changes: Any) -> Build:
    return lambda world: join_request(group, member, **changes)


JOIN_GROUP = [
    *(
        Case("JoinGroup", name, build)
        for name, build in (
            ("empty group", _join("")),
            ("unknown member", _join(member="nobody")),
            ("unknown member of a group that is", _join("conformance-group", "nobody")),
            ("session too short", _join(session_timeout_ms=5)),
            ("session too long", _join(session_timeout_ms=2**31 - 1)),
            ("negative session", _join(session_timeout_ms=-1)),
            ("no protocols", _join(protocols=[])),
            ("empty protocol type", _join(protocol_type="")),
            ("other protocol type", _join("conformance-group", protocol_type="connect")),
            (
                "no common protocol",
                _join(
                    "conformance-group",
                    protocols=[JoinGroupRequestProtocol(name="other", metadata=b"")],
                ),
            ),
        )
    ),
    Case("JoinGroup", "first of two", lambda w: join_request("conformance-first"), (4, 99)),
    Case(
        "JoinGroup",
        "other member of an instance",
        lambda w: join_request(w.static_group, "nobody", group_instance_id=w.instance),
        (5, 99),
    ),
    Case(
        "JoinGroup",
        "unknown instance with a member id",
        lambda w: join_request(w.static_group, "nobody", group_instance_id="other"),
        (5, 99),
    ),
    Case(
        "JoinGroup",
        "empty instance",
        lambda w: join_request("conformance-join", group_instance_id=""),
        (5, 99),
    ),
]


def _sync(
    group: str | None = None,
    member: str | None = None,
    generation: int | None = None,
    *,
    instance: str | None = None,
    type_: str | None = None,
    name: str | None = None,
) -> Build:
    return lambda world: SyncGroupRequest(
        group_id=world.group if group is None else group,
        member_id=world.member if member is None else member,
        generation_id=world.generation if generation is None else generation,
        group_instance_id=instance,
        protocol_type=type_ if type_ is not None else "consumer",
        protocol_name=name if name is not None else "range",
    )


SYNC_GROUP = [
    *(
        Case("SyncGroup", name, build)
        for name, build in (
            ("accepted", _sync()),
            ("empty group", _sync("")),
            ("unknown group", _sync("no-such-group")),
            ("group without members", _sync("conformance-empty")),
            ("unknown member", _sync(member="nobody")),
            ("empty member", _sync(member="")),
            ("generation from the future", _sync(generation=999)),
            ("negative generation", _sync(generation=-1)),
        )
    ),
    Case("SyncGroup", "other protocol type", _sync(type_="connect"), (5, 99)),
    Case("SyncGroup", "other protocol", _sync(name="other"), (5, 99)),
    Case("SyncGroup", "unknown instance", _sync(instance="other"), (3, 99)),
    Case(
        "SyncGroup",
        "other member of an instance",
        lambda w: _sync(w.static_group, "nobody", instance=w.instance)(w),
        (3, 99),
    ),
]


def _heartbeat(
    group: str | None = None,
    member: str | None = None,
    generation: int | None = None,
    *,
    instance: str | None = None,
) -> Build:
    return lambda world: HeartbeatRequest(
        group_id=world.group if group is None else group,
        member_id=world.member if member is None else member,
        generation_id=world.generation if generation is None else generation,
        group_instance_id=instance,
    )


HEARTBEAT = [
    *(
        Case("Heartbeat", name, build)
        for name, build in (
            ("accepted", _heartbeat()),
            ("empty group", _heartbeat("")),
            ("unknown group", _heartbeat("no-such-group")),
            ("group without members", _heartbeat("conformance-empty")),
            ("unknown member", _heartbeat(member="nobody")),
            ("empty member", _heartbeat(member="")),
            ("generation from the future", _heartbeat(generation=999)),
            ("older generation", _heartbeat(generation=0)),
            ("negative generation", _heartbeat(generation=-1)),
        )
    ),
    Case("Heartbeat", "unknown instance", _heartbeat(instance="other"), (3, 99)),
    Case(
        "Heartbeat",
        "other member of an instance",
        lambda w: _heartbeat(w.static_group, "nobody", instance=w.instance)(w),
        (3, 99),
    ),
]


def _leave(group: str, member: str, instance: str | None = None) -> Build:
    return lambda world: LeaveGroupRequest(
        group_id=group,
        member_id=member,
        members=[MemberIdentity(member_id=member, group_instance_id=instance)],
    )


LEAVE_GROUP = [
    *(
        Case("LeaveGroup", name, build)
        for name, build in (
            ("empty group", _leave("", "nobody")),
            ("unknown group", _leave("no-such-group", "nobody")),
            ("group without members", _leave("conformance-empty", "nobody")),
            ("unknown member", _leave("conformance-group", "nobody")),
            ("empty member", _leave("conformance-group", "")),
        )
    ),
    Case("LeaveGroup", "unknown instance", _leave("conformance-static", "", "other"), (3, 99)),
    Case(
        "LeaveGroup",
        "other member of an instance",
        _leave("conformance-static", "nobody", "instance-1"),
        (3, 99),
    ),
    Case(
        "LeaveGroup", "nobody", lambda w: LeaveGroupRequest(group_id=w.group, members=[]), (3, 99)
    ),
]


def _commit(
    group: str = "conformance-empty",
    member: str = "",
    generation: int = -1,
    *,
    topic: str | None = None,
    topic_id: bytes | None = None,
    partition: int = 0,
    offset: int = 1,
    note: str | None = "",
    instance: str | None = None,
) -> Build:
    def build(world: World) -> Any:
        entry = OffsetCommitRequestTopic(
            name=world.topic if topic is None else topic,
            topic_id=world.topic_id if topic_id is None else topic_id,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=note
                )
            ],
        )
        return OffsetCommitRequest(
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance,
            topics=[entry],
        )

    return build


OFFSET_COMMIT = [
    *(
        Case("OffsetCommit", name, build)
        for name, build in (
            ("accepted", _commit()),
            ("empty group", _commit("")),
            ("unknown group with a generation", _commit("no-such-group", "nobody", 1)),
            ("empty group with a generation", _commit("conformance-empty", "nobody", 1)),
            ("unknown member", _commit("conformance-group", "nobody", 1)),
            (
                "generation from the future",
                lambda w: _commit(w.group, w.member, w.generation + 9)(w),
            ),
            ("from outside of a group with members", _commit("conformance-group")),
            ("unknown partition", _commit(partition=9)),
            ("negative partition", _commit(partition=-1)),
            ("negative offset", _commit(offset=-5)),
            ("no note", _commit(note=None)),
            ("longest note", _commit(note="n" * 4096)),
            ("note too long", _commit(note="n" * 4097)),
        )
    ),
    Case("OffsetCommit", "unknown topic", _commit(topic="no-such-topic"), (2, 9)),
    Case("OffsetCommit", "unknown id", _commit(topic_id=UNKNOWN_ID), (10, 99)),
    Case(
        "OffsetCommit",
        "other member of an instance",
        lambda w: _commit(w.static_group, "nobody", 1, instance=w.instance)(w),
        (7, 99),
    ),
]


def _offsets(
    group: str = "conformance-empty",
    *,
    topic: str | None = None,
    topic_id: bytes | None = None,
    partition: int = 0,
    member: str | None = None,
    epoch: int = -1,
    stable: bool = False,
) -> Build:
    def build(world: World) -> Any:
        name = world.topic if topic is None else topic
        newer = OffsetFetchRequestTopics(
            name=name,
            topic_id=world.topic_id if topic_id is None else topic_id,
            partition_indexes=[partition],
        )
        return OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[partition])],
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group, member_id=member, member_epoch=epoch, topics=[newer]
                )
            ],
            require_stable=stable,
        )

    return build


OFFSET_FETCH = [
    *(
        Case("OffsetFetch", name, build)
        for name, build in (
            ("accepted", _offsets()),
            ("empty group", _offsets("")),
            ("unknown group", _offsets("no-such-group")),
            ("unknown partition", _offsets(partition=9)),
            ("stable", _offsets(stable=True)),
        )
    ),
    Case("OffsetFetch", "unknown topic", _offsets(topic="no-such-topic"), (1, 9)),
    Case("OffsetFetch", "unknown id", _offsets(topic_id=UNKNOWN_ID), (10, 99)),
    Case("OffsetFetch", "unknown member", _offsets(member="nobody", epoch=1), (9, 99)),
    Case(
        "OffsetFetch",
        "unknown member of a classic group",
        _offsets("conformance-group", member="nobody", epoch=1),
        (9, 99),
    ),
]


def _describe(group: str) -> Build:
    return lambda world: DescribeGroupsRequest(groups=[group])


def _find(key: str, kind: int) -> Build:
    return lambda world: FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])


GROUPS = [
    *(
        Case("DescribeGroups", name, _describe(group))
        for name, group in (
            ("accepted", "conformance-group"),
            ("unknown group", "no-such-group"),
            ("empty name", ""),
        )
    ),
    Case("DescribeGroups", "none", lambda w: DescribeGroupsRequest(groups=[])),
    Case("ListGroups", "all", lambda w: ListGroupsRequest()),
    Case(
        "ListGroups", "unknown state", lambda w: ListGroupsRequest(states_filter=["Odd"]), (4, 99)
    ),
    Case("ListGroups", "unknown type", lambda w: ListGroupsRequest(types_filter=["odd"]), (5, 99)),
    *(
        Case(
            "FindCoordinator",
            name,
            _find(key, kind),
        )
        for name, key, kind in (
            ("group", "conformance-group", 0),
            ("empty group", "", 0),
        )
    ),
    *(
        Case(
            "FindCoordinator",
            name,
            _find(key, kind),
            versions,
        )
        for name, key, kind, versions in (
            ("unknown type", "x", 9, (1, 99)),
            ("share too early", "g:AAAAAAAAAAAAAAAAAAAAAA:0", 2, (1, 5)),
        )
    ),
    Case("FindCoordinator", "none", lambda w: FindCoordinatorRequest(), (4, 99)),
]

CASES = [
    *JOIN_GROUP,
    *SYNC_GROUP,
    *HEARTBEAT,
    *LEAVE_GROUP,
    *OFFSET_COMMIT,
    *OFFSET_FETCH,
    *GROUPS,
]
