"""DeleteGroups (42): deletes groups that have no members."""

from __future__ import annotations

from lakelog.coordinator.shard import Reply
from lakelog.protocol.groups import DeleteGroupsRequest, DeleteGroupsResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: DeleteGroupsRequest
) -> Reply[DeleteGroupsResponse]:
    return broker.groups.admin.delete_groups(request)


API = ServedApi(DeleteGroupsRequest, handle, done="All.")
