"""BrokerRegistration (62): registers a starting broker at the controller."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.brokers import BrokerRegistrationRequest, BrokerRegistrationResponse
from lakelog.server.auth.principal import is_broker
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    if not is_broker(context.principal, request.broker_id):
        return BrokerRegistrationResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return await broker.controller.register(request)


API = ServedApi(
    BrokerRegistrationRequest,
    handle,
    done="Between brokers.",
    missing="Several folders.",
    between_brokers=True,
)
