"""ConsumerGroupHeartbeat (68): is the only request of a member of a consumer group (KIP-848)."""

from __future__ import annotations

from lakelog.coordinator.shard import Reply
from lakelog.protocol.group_members import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: ConsumerGroupHeartbeatRequest
) -> Reply[ConsumerGroupHeartbeatResponse]:
    """Pass the request to the group's coordinator; the address has Kafka's form, `/1.2.3.4`."""
    return broker.groups.consumer_group_heartbeat(
        request, context.version, context.client_id, f"/{context.connection.session.peer[0]}"
    )


API = ServedApi(
    ConsumerGroupHeartbeatRequest,
    handle,
    done="Uniform and range assignors, regular expressions.",
)
