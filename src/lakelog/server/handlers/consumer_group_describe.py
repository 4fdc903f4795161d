"""ConsumerGroupDescribe (69): returns the state and the members of consumer groups (KIP-848)."""

from __future__ import annotations

from lakelog.protocol.groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    return broker.groups.admin.consumer_group_describe(request).result()


API = ServedApi(ConsumerGroupDescribeRequest, handle, done="All.")
