"""SyncGroup (14): returns to each member of a classic group the assignment by its leader.

The response of a member waits for the leader's request.
"""

from __future__ import annotations

from lakelog.coordinator.shard import Reply
from lakelog.protocol.group_members import SyncGroupRequest, SyncGroupResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(broker: Broker, context: Context, request: SyncGroupRequest) -> Reply[SyncGroupResponse]:
    return broker.groups.sync_group(request, context.version)


API = ServedApi(SyncGroupRequest, handle, done="All.")
