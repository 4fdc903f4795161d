"""Client requests that change the metadata; other brokers send them on to the controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.server.auth.principal import BROKER
from lakelog.server.broker import Broker
from lakelog.server.controller.link import may_be_done
from lakelog.server.requests.context import Context
from lakelog.wire.schema import Message

_Handler = Callable[[Broker, Context, Any], Awaitable[Message]]
_Failed = Callable[[Context, Any, KafkaError], Message]


def at_controller(
    broker: Broker, handle: _Handler, failed: _Failed, context: Context, request: Message
) -> Awaitable[Message]:
    """Return the response of the handler, here or at the controller.

    failed: returns the response if the controller cannot be asked, or does not answer.

    A forwarded request is handled here, even by a broker that is not the controller any more.
    """
    if broker.controller_link.is_here or context.principal.kind == BROKER:
        return handle(broker, context, request)
    return _sent_on(broker, handle, failed, context, request)


async def _sent_on(
    broker: Broker, handle: _Handler, failed: _Failed, context: Context, request: Message
) -> Message:
    try:
        response: Message = await broker.controller_link.carry_out(
            request, lambda: handle(broker, context, request), newest=context.version
        )
    except KafkaError as error:
        return failed(context, request, _for_client(error))
    return response


def _for_client(error: KafkaError) -> KafkaError:
    """Return the error that a client gets.

    It alone knows whether its request may be repeated: a deletion that arrives after its repetition
    would delete the topic that the client has created again under the same name.
    """
    if not may_be_done(error):
        return error
    text = f"the controller may have made the change, or may make it later: {error.message}"
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
