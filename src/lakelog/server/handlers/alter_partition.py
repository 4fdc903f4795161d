"""AlterPartition (56): changes the in-sync replicas of partitions for their leader."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.brokers import AlterPartitionRequest, AlterPartitionResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    if not broker.relays.may_send(context.principal, request):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if broker.relays.has_to_send_on(request):
        return await broker.relays.send_on(request, AlterPartitionResponse)
    return await broker.controller.alter_partition(request)


API = ServedApi(
    AlterPartitionRequest,
    handle,
    done="Between brokers: shrinks and expands the ISR.",
    missing="Leader recovery.",
    between_brokers=True,
)
