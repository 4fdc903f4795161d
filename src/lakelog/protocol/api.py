"""An API of Kafka's protocol: its key and its two messages, which declare its versions.

The module of a family ends with the tuple `APIS`; `lakelog.protocol.registry` collects them. Code
that needs one API imports its family and calls `api_for`, so that a client starts without the
others.
"""

from __future__ import annotations

from lakelog.wire.schema import Message
from lakelog.wire.shapes import Versions

OWN_TAGS = 10_000
"""The first tag of fields that Apache Kafka does not have, and ignores (KIP-482)."""
_NEVER_FLEXIBLE = 1 << 15

_BY_REQUEST: dict[type[Message], Api] = {}


class Api:
    """An API, identified on the wire by `key`, with the versions that its messages declare.

    `name` is Kafka's, such as "Heartbeat". `max_version` is the newest stable version, and
    `flexible_from` the first flexible one. The server may serve fewer versions, or advertise more
    (`lakelog.server.served_api`).
    """

    __slots__ = (
        "flexible_from",
        "key",
        "max_version",
        "min_version",
        "name",
        "request",
        "response",
    )

    def __init__(
        self,
        key: int,
        request: type[Message],
        response: type[Message],
        *,
        latest_is_unstable: bool = False,
    ) -> None:
        """Declare an API. `latest_is_unstable` is `latestVersionUnstable` of Kafka's schema."""
        versions, flexible = request.__versions__, request.__flexible__
        self.key = key
        self.name = request.__name__.removesuffix("Request")
        self.request = request
        self.response = response
        self.min_version = versions.lowest
        self.max_version = versions.highest - latest_is_unstable
        is_flexible = flexible.lowest <= flexible.highest
        self.flexible_from = flexible.lowest if is_flexible else _NEVER_FLEXIBLE
        assert request.__name__ != self.name == response.__name__.removesuffix("Response")
        assert repr(response.__versions__) == repr(versions), "a response for each request"
        _BY_REQUEST[request] = self

    @property
    def versions(self) -> Versions:
        """The stable versions."""
        return Versions(self.min_version, self.max_version)

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name}, {self.min_version}-{self.max_version})"


def api_for(request: type[Message]) -> Api:
    """Return the API of a request class. Raises `KeyError` for any other class."""
    return _BY_REQUEST[request]
