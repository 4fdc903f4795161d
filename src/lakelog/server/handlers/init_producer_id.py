"""InitProducerId (22): returns an id and epoch for an idempotent or transactional producer.

Without a transactional id every call gets a new id with epoch 0, also a client that asks to bump
its epoch (KIP-360), as in Apache Kafka. With one, its coordinator decides, and fences the previous
producer. Clients before version 4 know INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.producers import InitProducerIdRequest, InitProducerIdResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi

_FENCED_SINCE = 4


async def handle(
    broker: Broker, context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return a producer id and epoch.

    The response has INVALID_REQUEST for an empty transactional id, and for a producer id without an
    epoch or an epoch without an id (KIP-360).
    """
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _transactional(broker, context, request)
    try:
        producer_id = await broker.producer_ids.next()
    except KafkaError as error:
        return _refused(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


API = ServedApi(
    InitProducerIdRequest,
    handle,
    done="Idempotent and transactional producers; in tagged fields, sinks and their tasks.",
    missing="Two-phase commit (version 6 is not stable in Kafka either).",
)


async def _transactional(
    broker: Broker, context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.run is not None or request.parent is not None:
        return await broker.transactions.sinks.initialise(request)
    answer = await broker.transactions.init_producer_id(request)
    if answer.code is ErrorCode.PRODUCER_FENCED and context.version < _FENCED_SINCE:
        return _refused(ErrorCode.INVALID_PRODUCER_EPOCH)
    return InitProducerIdResponse(
        error_code=answer.code,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
