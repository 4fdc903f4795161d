"""OffsetCommit (8): commits the offsets of a group, or of a client outside of any group.

The response waits until the offsets are committed in the group's partition. Version 10 names topics
by their ids.
"""

from __future__ import annotations

from lakelog.coordinator.shard import Reply
from lakelog.protocol.offsets import OffsetCommitRequest, OffsetCommitResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: OffsetCommitRequest
) -> Reply[OffsetCommitResponse]:
    return broker.groups.offset_commit(request, context.version)


API = ServedApi(
    OffsetCommitRequest,
    handle,
    done="Both group protocols, clients outside a group, by topic id.",
)
