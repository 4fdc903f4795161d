"""How a handler module declares its API: `API = ServedApi(...)`, beside the handler.

The table of routes, the answer of ApiVersions and docs/api-support.md are derived from the
declarations (`routes`, `api_page`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lakelog.protocol.api_versions import ApiVersion
from lakelog.protocol.registry import Api, api_for
from lakelog.server.broker import Broker
from lakelog.server.connections.repeat import Repeat
from lakelog.server.requests.context import Context
from lakelog.wire.schema import Message

R = TypeVar("R", bound=Message)


@dataclass(frozen=True, slots=True)
class ServedApi(Generic[R]):
    """One API as this broker serves it, in all versions of the registry.

    Args:
        request: the request class, which names the API.
        handle: see `requests.dispatch` for what it may return.
        done: the supported features, for the page of APIs; `missing`: the unsupported ones.
        in_place: the handler is done with the request's buffers when it returns, so the request is
            decoded as views of the receive buffer; otherwise from a copy.
        learn: makes the connection's next repeat of its last one and a request just handled.
        counts_errors: the handler adds the error codes of its responses to `RequestMetrics`;
            otherwise the dispatcher searches each response for them.
        advertised_from: lowest version in ApiVersions, if that is below the lowest served one.
    """

    request: type[R]
    handle: Callable[[Broker, Context, R], Any]
    done: str
    missing: str = ""
    in_place: bool = False
    learn: Callable[[Broker, Repeat | None, Context, R], Repeat | None] | None = None
    counts_errors: bool = False
    advertised_from: int | None = None

    @property
    def api(self) -> Api:
        return api_for(self.request)

    @property
    def advertised(self) -> ApiVersion:
        """The API's entry in a response to ApiVersions."""
        api, lowest = self.api, self.advertised_from
        return ApiVersion(
            api_key=api.key,
            min_version=api.min_version if lowest is None else lowest,
            max_version=api.max_version,
        )
