"""OffsetFetch (9): returns the committed offsets of one group, or from version 8 on of several.

From version 7 on, a client can require that no transaction has offsets pending (KIP-447).
"""

from __future__ import annotations

from lakelog.coordinator.shard import Reply
from lakelog.protocol.offsets import OffsetFetchRequest, OffsetFetchResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: OffsetFetchRequest
) -> Reply[OffsetFetchResponse]:
    return broker.groups.offset_fetch(request, context.version)


API = ServedApi(OffsetFetchRequest, handle, done="One group or many, require_stable, by topic id.")
