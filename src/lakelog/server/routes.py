"""The table of APIs, built from the declarations in the modules of `handlers`.

Client requests that change the metadata are sent on to the controller by other brokers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import cache, partial
from itertools import chain
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.connections import ApiVersion
from lakelog.protocol.registry import APIS
from lakelog.server.authentication import BROKER
from lakelog.server.broker import Broker
from lakelog.server.controller.relays import may_be_done
from lakelog.server.handlers import (
    brokers,
    cluster,
    configs,
    connections,
    fetch,
    groups,
    metadata,
    offsets,
    produce,
    replicas,
    topics,
    transactions,
)
from lakelog.server.requests.admission import refuse
from lakelog.server.requests.context import Context
from lakelog.server.requests.dispatch import Handler, Route
from lakelog.server.served_api import ServedApi
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


@cache
def served_apis() -> tuple[ServedApi[Any], ...]:
    """Return the declarations of all families, in the order of API keys."""
    apis: Iterable[ServedApi[Any]] = chain(
        brokers.APIS,
        cluster.APIS,
        configs.APIS,
        connections.APIS,
        fetch.APIS,
        groups.APIS,
        metadata.APIS,
        offsets.APIS,
        produce.APIS,
        replicas.APIS,
        topics.APIS,
        transactions.APIS,
    )
    served = tuple(sorted(apis, key=lambda served_api: served_api.api.key))
    assert [served_api.api.key for served_api in served] == sorted(APIS), "one handler for each API"
    return served


def _apis(*, in_cluster: bool) -> list[ServedApi[Any]]:
    return [
        served_api for served_api in served_apis() if in_cluster or not served_api.between_brokers
    ]


def between_brokers() -> frozenset[int]:
    """Return the keys of the APIs that only brokers may use."""
    return frozenset(
        served_api.api.key for served_api in served_apis() if served_api.between_brokers
    )


def advertised_apis(*, in_cluster: bool) -> list[ApiVersion]:
    """Return the served APIs as ApiVersions lists them."""
    return [served_api.advertised_row for served_api in _apis(in_cluster=in_cluster)]


def routes(broker: Broker, *, in_cluster: bool) -> dict[int, Route]:
    """Return the routes to the handlers, by API key."""
    return {
        served_api.api.key: Route(
            served_api.api,
            _handler(broker, served_api),
            versions=served_api.served_versions,
            in_place=served_api.in_place,
            cache_request=None
            if served_api.cache_request is None
            else partial(served_api.cache_request, broker),
            refuse=refuse if served_api.refuse is None else partial(served_api.refuse, broker),
            counts_errors=served_api.counts_errors,
        )
        for served_api in _apis(in_cluster=in_cluster)
    }


def _handler(broker: Broker, served: ServedApi[Any]) -> Handler:
    if served.by_controller is not None:
        return partial(at_controller, broker, served.handle, served.by_controller)
    return partial(served.handle, broker)


def newer_api_versions(broker: Broker) -> Handler:
    """Return the handler of ApiVersions requests of a version unknown here."""
    return partial(connections.unsupported_api_versions, broker)
