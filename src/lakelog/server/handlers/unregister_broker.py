"""UnregisterBroker (64): removes the registration of a broker that will not return."""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.protocol.cluster import UnregisterBrokerRequest, UnregisterBrokerResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Unregister a stopped broker.

    The response has BROKER_ID_NOT_REGISTERED for an unknown one and INVALID_REQUEST for a running
    one.
    """
    try:
        await broker.controller.unregister(request.broker_id)
    except KafkaError as error:
        return _failed(context, request, error)
    return UnregisterBrokerResponse(error_message=None)


def _failed(
    context: Context, request: UnregisterBrokerRequest, error: KafkaError
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)


API = ServedApi(
    UnregisterBrokerRequest,
    handle,
    done="Stopped brokers; their replicas stay offline.",
    missing="Running brokers, which Kafka unregisters too.",
    by_controller=_failed,
)
