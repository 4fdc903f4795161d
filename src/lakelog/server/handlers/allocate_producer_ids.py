"""AllocateProducerIds (67): reserves a block of producer ids for a broker."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from lakelog.server.auth.principal import is_broker
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    if not is_broker(context.principal, request.broker_id):
        return AllocateProducerIdsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return await broker.controller.allocate_producer_ids(request)


API = ServedApi(AllocateProducerIdsRequest, handle, done="Between brokers.", between_brokers=True)
