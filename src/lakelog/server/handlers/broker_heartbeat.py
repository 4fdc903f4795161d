"""BrokerHeartbeat (63): unfences a broker that has caught up, or lets it stop."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from lakelog.server.auth.principal import is_broker
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse:
    if not is_broker(context.principal, request.broker_id):
        return BrokerHeartbeatResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return await broker.controller.heartbeat(request)


API = ServedApi(
    BrokerHeartbeatRequest,
    handle,
    done="Between brokers.",
    missing="Fencing on request; offline and cordoned folders.",
    between_brokers=True,
)
