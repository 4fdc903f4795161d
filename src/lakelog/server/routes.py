"""The table of APIs, built from the declarations in the modules of `handlers`."""

from __future__ import annotations

from functools import cache, partial
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from lakelog.protocol.api_versions import ApiVersion
from lakelog.protocol.registry import APIS
from lakelog.server import handlers
from lakelog.server.broker import Broker
from lakelog.server.forwarding import at_controller
from lakelog.server.handlers import api_versions
from lakelog.server.requests.dispatch import Handler, Route
from lakelog.server.requests.gate import refuse
from lakelog.server.served_api import ServedApi


@cache
def served_apis() -> tuple[ServedApi[Any], ...]:
    """Return the declaration of each handler module, in the order of API keys."""
    names = (f"{handlers.__name__}.{found.name}" for found in iter_modules(handlers.__path__))
    found: list[ServedApi[Any]] = [import_module(name).API for name in names]
    served = tuple(sorted(found, key=lambda each: each.api.key))
    assert [each.api.key for each in served] == sorted(APIS), "one handler for each API"
    return served


def _apis(*, in_cluster: bool) -> list[ServedApi[Any]]:
    return [each for each in served_apis() if in_cluster or not each.between_brokers]


def between_brokers() -> frozenset[int]:
    """Return the keys of the APIs that only brokers may use."""
    return frozenset(each.api.key for each in served_apis() if each.between_brokers)


def advertised_apis(*, in_cluster: bool) -> list[ApiVersion]:
    """Return the served APIs as ApiVersions lists them."""
    return [each.advertised_row for each in _apis(in_cluster=in_cluster)]


def routes(broker: Broker, *, in_cluster: bool) -> dict[int, Route]:
    """Return the routes to the handlers, by API key."""
    return {
        each.api.key: Route(
            each.api,
            _handler(broker, each),
            versions=each.served_versions,
            in_place=each.in_place,
            learn=None if each.learn is None else partial(each.learn, broker),
            refuse=refuse if each.refuse is None else partial(each.refuse, broker),
            counts_errors=each.counts_errors,
        )
        for each in _apis(in_cluster=in_cluster)
    }


def _handler(broker: Broker, served: ServedApi[Any]) -> Handler:
    if served.by_controller is not None:
        return partial(at_controller, broker, served.handle, served.by_controller)
    return partial(served.handle, broker)


def newer_api_versions(broker: Broker) -> Handler:
    """Return the handler of ApiVersions requests of a version unknown here."""
    return partial(api_versions.handle_unsupported, broker)
