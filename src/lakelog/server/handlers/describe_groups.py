"""DescribeGroups (15): returns the state and the members of classic groups."""

from __future__ import annotations

from lakelog.protocol.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from lakelog.server.broker import Broker
from lakelog.server.coordinators.group_operations import authorize
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    response = broker.groups.admin.describe_groups(request, context.version).result()
    if request.include_authorized_operations:
        authorize(response.groups)
    return response


API = ServedApi(DescribeGroupsRequest, handle, done="Groups of the classic protocol.")
