"""AllocateProducerIds (67): reserves a block of producer ids for a broker."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.brokers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    if not broker.relays.may_send(context.principal, request):
        return AllocateProducerIdsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if broker.relays.has_to_send_on(request):
        return await broker.relays.send_on(request, AllocateProducerIdsResponse)
    return await broker.controller.allocate_producer_ids(request)


API = ServedApi(AllocateProducerIdsRequest, handle, done="Between brokers.", between_brokers=True)
