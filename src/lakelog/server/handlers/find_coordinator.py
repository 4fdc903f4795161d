"""FindCoordinator (10): returns the broker that coordinates a group or a transactional id.

The coordinator's topic is created on first use.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi

_GROUP = 0
_TRANSACTION = 1
_BATCHED_SINCE = 4


async def handle(
    broker: Broker, context: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if context.version >= _BATCHED_SINCE:
        found = [
            await _find(broker, context, request.key_type, key) for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=found)
    one = await _find(broker, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


API = ServedApi(
    FindCoordinatorRequest,
    handle,
    done="Groups and transactional ids.",
    missing="Share groups.",
)


async def _find(broker: Broker, context: Context, key_type: int, key: str) -> Coordinator:
    try:
        if key_type == _GROUP:
            await broker.topics.ensure_group_topic()
        elif key_type == _TRANSACTION:
            await broker.topics.ensure_transaction_topic()
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"coordinator type {key_type} is unknown")
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message
        )
    node = broker.self_for(context.connection)
    return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)
