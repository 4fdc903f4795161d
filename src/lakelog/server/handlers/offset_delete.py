"""OffsetDelete (47): deletes committed offsets of topics without a subscribed member."""

from __future__ import annotations

from lakelog.coordinator.shard import Reply
from lakelog.protocol.offsets import OffsetDeleteRequest, OffsetDeleteResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: OffsetDeleteRequest
) -> Reply[OffsetDeleteResponse]:
    return broker.groups.admin.offset_delete(request)


API = ServedApi(OffsetDeleteRequest, handle, done="All.")
