"""InitProducerId (22): a new identity for an idempotent producer.

Without a transactional id there is nothing to resume: every call gets a fresh id with epoch 0. A
client that asks to bump its epoch (KIP-360) is given a fresh id too, as Apache Kafka does.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lakelog.server.broker import Broker
from lakelog.server.dispatch import Context


async def handle(
    broker: Broker, context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await broker.producer_ids.next()
    except KafkaError as error:
        return _refused(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
