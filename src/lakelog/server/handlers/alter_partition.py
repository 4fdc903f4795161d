"""AlterPartition (56): changes the in-sync replicas of partitions for their leader."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from lakelog.server.auth.principal import is_broker
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    if not is_broker(context.principal, request.broker_id):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return await broker.controller.alter_partition(request)


API = ServedApi(
    AlterPartitionRequest,
    handle,
    done="Between brokers: shrinks and expands the ISR.",
    missing="Leader recovery.",
    between_brokers=True,
)
