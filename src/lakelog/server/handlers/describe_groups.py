"""DescribeGroups (15): returns the state and the members of classic groups."""

from __future__ import annotations

from lakelog.protocol.groups import DescribeGroupsRequest, DescribeGroupsResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    return broker.groups.admin.describe_groups(request, context.version).result()


API = ServedApi(DescribeGroupsRequest, handle, done="Groups of the classic protocol.")
