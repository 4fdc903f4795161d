"""AddOffsetsToTxn (25): makes the partition of a group's offsets part of a transaction."""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.coordinator.shard import coordinator_code
from lakelog.coordinator.transaction.producers import fenced_code
from lakelog.coordinator.transaction.state import TransactionVersion
from lakelog.coordinator.transaction.transitions import Producer
from lakelog.protocol.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add the partition of the group's offsets to the transaction."""
    try:
        await broker.topics.ensure_group_topic()
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=coordinator_code(error.code))
    code = await broker.transactions.add_partitions(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        [(GROUP_TOPIC, broker.groups.partition_for(request.group_id))],
        TransactionVersion.CLASSIC,
    )
    return AddOffsetsToTxnResponse(error_code=fenced_code(code, context.version))


API = ServedApi(AddOffsetsToTxnRequest, handle, done="All.")
