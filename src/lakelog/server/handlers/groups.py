"""The group APIs: OffsetCommit (8), OffsetFetch (9), JoinGroup (11), Heartbeat (12),
LeaveGroup (13), SyncGroup (14), DescribeGroups (15), ListGroups (16), DeleteGroups (42),
OffsetDelete (47), ConsumerGroupHeartbeat (68) and ConsumerGroupDescribe (69).

Everything is decided in the coordinator, where a request waits as data until it is answered. What
is left here is what only the connection knows.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.coordinator.shard import Reply
from lakelog.protocol import consumer_group_describe as consumer_groups_api
from lakelog.protocol import describe_groups as describe_groups_api
from lakelog.protocol.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from lakelog.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from lakelog.protocol.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from lakelog.protocol.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from lakelog.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from lakelog.protocol.join_group import JoinGroupRequest, JoinGroupResponse
from lakelog.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse
from lakelog.protocol.list_groups import ListGroupsRequest, ListGroupsResponse
from lakelog.protocol.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from lakelog.protocol.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from lakelog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from lakelog.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context

_GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""READ, DELETE, DESCRIBE and those on configurations, as bits of Kafka's AclOperation."""


def offset_commit(
    broker: Broker, context: Context, request: OffsetCommitRequest
) -> Reply[OffsetCommitResponse]:
    return broker.groups.offset_commit(request, context.version)


def offset_fetch(
    broker: Broker, context: Context, request: OffsetFetchRequest
) -> Reply[OffsetFetchResponse]:
    return broker.groups.offset_fetch(request, context.version)


def join_group(
    broker: Broker, context: Context, request: JoinGroupRequest
) -> Reply[JoinGroupResponse]:
    return broker.groups.join_group(
        request, context.version, context.client_id, f"/{context.client_host}"
    )


def sync_group(
    broker: Broker, context: Context, request: SyncGroupRequest
) -> Reply[SyncGroupResponse]:
    return broker.groups.sync_group(request, context.version)


def heartbeat(
    broker: Broker, context: Context, request: HeartbeatRequest
) -> Reply[HeartbeatResponse]:
    return broker.groups.heartbeat(request, context.version)


def leave_group(
    broker: Broker, context: Context, request: LeaveGroupRequest
) -> Reply[LeaveGroupResponse]:
    return broker.groups.leave_group(request, context.version)


def describe_groups(
    broker: Broker, context: Context, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    response = broker.groups.admin.describe_groups(request, context.version).result()
    if request.include_authorized_operations:
        _authorize(response.groups)
    return response


def list_groups(
    broker: Broker, context: Context, request: ListGroupsRequest
) -> Reply[ListGroupsResponse]:
    return broker.groups.admin.list_groups(request)


def consumer_group_heartbeat(
    broker: Broker, context: Context, request: ConsumerGroupHeartbeatRequest
) -> Reply[ConsumerGroupHeartbeatResponse]:
    return broker.groups.consumer_group_heartbeat(
        request, context.version, context.client_id, f"/{context.client_host}"
    )


def consumer_group_describe(
    broker: Broker, context: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    response = broker.groups.admin.consumer_group_describe(request).result()
    if request.include_authorized_operations:
        _authorize(response.groups)
    return response


def delete_groups(
    broker: Broker, context: Context, request: DeleteGroupsRequest
) -> Reply[DeleteGroupsResponse]:
    return broker.groups.admin.delete_groups(request)


def offset_delete(
    broker: Broker, context: Context, request: OffsetDeleteRequest
) -> Reply[OffsetDeleteResponse]:
    return broker.groups.admin.offset_delete(request)


def _authorize(
    groups: Iterable[describe_groups_api.DescribedGroup | consumer_groups_api.DescribedGroup],
) -> None:
    for group in groups:
        if not group.error_code:
            group.authorized_operations = _GROUP_OPERATIONS
