"""Client requests that change the metadata; other brokers send them on to the controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lakelog.server.auth.principal import BROKER
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.wire.schema import Message


def at_controller(
    broker: Broker,
    handle: Callable[[Broker, Context, Any], Awaitable[Message]],
    context: Context,
    request: Message,
) -> Awaitable[Message]:
    """Return the response of the handler, here or at the controller.

    A forwarded request is handled here, even by a broker that is not the controller any more.
    """
    if broker.controller_link.is_here or context.principal.kind == BROKER:
        return handle(broker, context, request)
    return _sent_on(broker, handle, context, request)


async def _sent_on(
    broker: Broker,
    handle: Callable[[Broker, Context, Any], Awaitable[Message]],
    context: Context,
    request: Message,
) -> Message:
    response: Message = await broker.controller_link.carry_out(
        request, lambda: handle(broker, context, request), newest=context.version
    )
    return response
