"""LeaveGroup (13): removes a member from its group, from version 3 on several (KIP-345)."""

from __future__ import annotations

from lakelog.coordinator.shard import Reply
from lakelog.protocol.group_members import LeaveGroupRequest, LeaveGroupResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: LeaveGroupRequest
) -> Reply[LeaveGroupResponse]:
    return broker.groups.leave_group(request, context.version)


API = ServedApi(
    LeaveGroupRequest,
    handle,
    done="One member or many, static members by instance id.",
)
