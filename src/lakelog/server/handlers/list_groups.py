"""ListGroups (16): lists the groups of this broker, filtered by state and type."""

from __future__ import annotations

from lakelog.coordinator.shard import Reply
from lakelog.protocol.groups import ListGroupsRequest, ListGroupsResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: ListGroupsRequest
) -> Reply[ListGroupsResponse]:
    return broker.groups.admin.list_groups(request)


API = ServedApi(ListGroupsRequest, handle, done="Filters of states and types.")
