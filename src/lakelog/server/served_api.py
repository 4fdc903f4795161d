"""How a handler module declares its API: `API = ServedApi(...)`, beside the handler.

The table of routes, the answer of ApiVersions and docs/api-support.md are derived from the
declarations (`routes`, `api_page`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.api import Api, api_for
from lakelog.protocol.connections import ApiVersion
from lakelog.server.broker import Broker
from lakelog.server.connections.request_sink import CachedRequest
from lakelog.server.requests.context import Context
from lakelog.wire.schema import Message
from lakelog.wire.shapes import Versions, parse

R = TypeVar("R", bound=Message)


@dataclass(frozen=True, slots=True)
class ServedApi(Generic[R]):
    """One API as this broker serves it.

    Args:
        request: the request class, which names the API.
        handle: answers a request; `requests.dispatch` lists the allowed results.
        done: the supported features, for the page of APIs; `missing`: the unsupported ones.
        in_place: the handler is done with the request's buffers when it returns, so the request is
            decoded as views of the receive buffer; otherwise from a copy.
        cache_request: returns the connection's cached request (a `CachedRequest`), given the
            previous one and the request that was just handled; None if it cannot be cached.
        refuse: answers a request that admission control refuses; by default its error is the
            `error_code` of the response (`requests.refusals`).
        counts_errors: the handler adds the error codes of its responses to `RequestMetrics`;
            otherwise the dispatcher searches each response for them.
        by_controller: for requests that another broker sends on to the controller (`routes`):
            returns the response if the whole change has failed with an error.
        between_brokers: only the brokers of a cluster use the API. A broker alone does not serve
            it: its clients could otherwise change the metadata.
        versions: the served versions, such as "0-4"; by default all that the protocol declares.
        advertised: the versions in ApiVersions; by default the served ones. A client must never
            be offered a newer version than the newest served one, because it would choose that.
    """

    request: type[R]
    handle: Callable[[Broker, Context, R], Any]
    done: str
    missing: str = ""
    in_place: bool = False
    cache_request: (
        Callable[[Broker, CachedRequest | None, Context, R], CachedRequest | None] | None
    ) = None
    refuse: Callable[[Broker, Context, R, ErrorCode], Any] | None = None
    counts_errors: bool = False
    by_controller: Callable[[Context, R, KafkaError], Message] | None = None
    between_brokers: bool = False
    versions: str | None = None
    advertised: str | None = None

    def __post_init__(self) -> None:
        served, declared, advertised = self.served_versions, self.api.versions, self.advertised_row
        assert declared.lowest <= served.lowest <= served.highest <= declared.highest
        assert advertised.min_version <= served.lowest
        assert advertised.max_version == served.highest

    @property
    def api(self) -> Api:
        return api_for(self.request)

    @property
    def served_versions(self) -> Versions:
        return self.api.versions if self.versions is None else parse(self.versions)

    @property
    def advertised_row(self) -> ApiVersion:
        """The API's row in a response to ApiVersions."""
        offered = self.served_versions if self.advertised is None else parse(self.advertised)
        return ApiVersion(
            api_key=self.api.key, min_version=offered.lowest, max_version=offered.highest
        )
