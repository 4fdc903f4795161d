"""BrokerHeartbeat (63): unfences a broker that has caught up, or lets it stop.

Any broker, not only the controller, answers the request for a lease of coordinators.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse:
    if not broker.relays.may_send(context.principal, request):
        return BrokerHeartbeatResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.want_lease:
        is_denied = broker.silence.deafness.is_denied(request.broker_id)
        granted = not is_denied and broker.controller.lease_grants.give(request.broker_id)
        return BrokerHeartbeatResponse(is_lease_granted=granted)
    if broker.relays.has_to_send_on(request):
        return await broker.relays.send_on(request, BrokerHeartbeatResponse)
    return await broker.controller.heartbeat(request)


API = ServedApi(
    BrokerHeartbeatRequest,
    handle,
    done="Between brokers.",
    missing="Fencing on request; offline and cordoned folders.",
    between_brokers=True,
)
