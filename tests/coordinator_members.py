"""Requests of group members, as protocol messages."""

from __future__ import annotations

from typing import Any

from group_setup import Setup
from lakelog.coordinator.shard import Reply
from lakelog.protocol.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

GROUP = "readers"


def join(
    setup: Setup,
    member_id: str = "",
    *,
    group: str = GROUP,
    version: int = 9,
    instance_id: str | None = None,
    protocols: tuple[tuple[str, bytes], ...] = (("range", b"meta"),),
    protocol_type: str = "consumer",
    session_timeout_ms: int = 10_000,
    rebalance_timeout_ms: int = 30_000,
    client_id: str = "client",
) -> Reply[JoinGroupResponse]:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
    )
    return setup.coordinator.join_group(request, version, client_id, "/127.0.0.1")


async def new_id(setup: Setup, **options: Any) -> str:
    """Return the member id of the response to a first JoinGroup."""
    response = await join(setup, **options)
    assert response.error_code == 79, response
    member_id: str = response.member_id
    return member_id


def sync(
    setup: Setup,
    joined: JoinGroupResponse,
    assignments: dict[str, bytes] | None = None,
    *,
    group: str = GROUP,
    instance_id: str | None = None,
    **changes: Any,
) -> Reply[SyncGroupResponse]:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance_id,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in (assignments or {}).items()
        ],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return setup.coordinator.sync_group(request, 5)


async def heartbeat(
    setup: Setup,
    joined: JoinGroupResponse,
    *,
    group: str = GROUP,
    instance_id: str | None = None,
) -> int:
    request = HeartbeatRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance_id,
    )
    code: int = (await setup.coordinator.heartbeat(request, 4)).error_code
    return code


async def leave(
    setup: Setup, *members: tuple[str, str | None], group: str = GROUP
) -> LeaveGroupResponse:
    request = LeaveGroupRequest(
        group_id=group,
        members=[
            MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in members
        ],
    )
    response: LeaveGroupResponse = await setup.coordinator.leave_group(request, 5)
    return response


async def form(
    setup: Setup, count: int, *, group: str = GROUP, **options: Any
) -> list[JoinGroupResponse]:
    """Return a stable group of dynamic members; the first one leads."""
    options["group"] = group
    first = await join(setup, await new_id(setup, **options), **options)
    ids = [await new_id(setup, **options) for _ in range(count - 1)]
    if ids:
        await sync(setup, first, group=group)
    waiting = [join(setup, member_id, **options) for member_id in ids]
    waiting.insert(0, join(setup, first.member_id, **options))
    joined = [await reply for reply in waiting]
    joined.sort(key=lambda each: each.member_id != each.leader)
    given = {each.member_id: each.member_id.encode() for each in joined}
    syncs = [
        sync(setup, each, given if each is joined[0] else None, group=group) for each in joined
    ]
    for each, reply in zip(joined, syncs, strict=True):
        response = await reply
        assert (response.error_code, response.assignment) == (0, each.member_id.encode())
    return joined


def commit(
    setup: Setup,
    offsets: dict[tuple[str, int], int],
    joined: JoinGroupResponse | None = None,
    *,
    group: str = GROUP,
    version: int = 9,
    metadata: str | None = "",
    **changes: Any,
) -> Reply[Any]:
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=joined.generation_id if joined is not None else -1,
        member_id=joined.member_id if joined is not None else "",
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=3,
                        committed_metadata=metadata,
                    )
                ],
            )
            for (topic, partition), offset in offsets.items()
        ],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return setup.coordinator.offset_commit(request, version)


async def commit_codes(*arguments: Any, **options: Any) -> list[int]:
    response = await commit(*arguments, **options)
    return [each.error_code for topic in response.topics for each in topic.partitions]


async def committed(setup: Setup, group: str = GROUP) -> dict[tuple[str, int], int]:
    """Return every committed offset of the group."""
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=True
    )
    answer = (await setup.coordinator.offset_fetch(request, 9)).groups[0]
    assert answer.error_code == 0
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }


async def committed_one(setup: Setup, topic: str, partition: int, group: str = GROUP) -> Any:
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])],
            )
        ]
    )
    response = await setup.coordinator.offset_fetch(request, 9)
    return response.groups[0].topics[0].partitions[0]
