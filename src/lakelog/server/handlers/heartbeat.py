"""Heartbeat (12): keeps a member of a classic group alive, and notifies it of a rebalance."""

from __future__ import annotations

from lakelog.coordinator.shard import Reply
from lakelog.protocol.group_members import HeartbeatRequest, HeartbeatResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(broker: Broker, context: Context, request: HeartbeatRequest) -> Reply[HeartbeatResponse]:
    return broker.groups.heartbeat(request, context.version)


API = ServedApi(HeartbeatRequest, handle, done="All.")
