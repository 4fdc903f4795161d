"""The protocol of one connection, without I/O: encodes requests and decodes responses.

Requests wait for their responses in a queue. Kafka's protocol guarantees that responses come in the
order of the requests; this module rejects a peer that breaks the order. It uses the newest version
of each API that both sides support. `hello` and `welcome` come first.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from lakelog.base.errors import ErrorCode, error_code
from lakelog.network_client.errors import (
    InvalidResponseError,
    NegotiationError,
    NoCommonVersionError,
)
from lakelog.protocol.api import Api, api_for
from lakelog.protocol.connections import ApiVersionsRequest, ApiVersionsResponse
from lakelog.wire.framing import decode_response, encode_request
from lakelog.wire.primitives import WireError
from lakelog.wire.schema import Buffer, Message

_API_VERSIONS = api_for(ApiVersionsRequest)
_FIRST_VERSION = 3
"""The first version that names the software; a broker that lacks it names its own (KIP-511)."""
_IDENTITY_VERSION = 5
_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
_CORRELATION_MAX = 2**31 - 1


class Identity(NamedTuple):
    """The broker that the requesting side intends to reach."""

    cluster_id: str
    node_id: int


class Pending(NamedTuple):
    """A request without a response."""

    correlation_id: int
    api: Api
    version: int


class NetworkClient:
    """Encodes requests, decodes responses, and keeps the requests in flight."""

    def __init__(
        self, client_id: str, software_version: str, expected: Identity | None = None
    ) -> None:
        """expected: the broker that has to answer; another one ends the negotiation (KIP-1242)."""
        self._client_id = client_id
        self._software_version = software_version
        self._expected = expected
        self._next_id = 0
        self._pending: deque[Pending] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, tuple[int, int]] = {}
        """Lowest and highest level of each feature that the broker supports (KIP-584)."""

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return len(self._pending)

    def hello(self, version: int | None = None) -> list[Buffer]:
        """Return the first request of a connection (ApiVersions) as parts of a frame.

        With an expected broker it names cluster id and node id (KIP-1242). `version` is the result
        of `welcome` for a second attempt (KIP-511).
        """
        request = ApiVersionsRequest(
            client_software_name="lakelog", client_software_version=self._software_version
        )
        if self._expected is not None:
            request.cluster_id, request.node_id = self._expected
        if version is None:
            version = _FIRST_VERSION if self._expected is None else _IDENTITY_VERSION
        return self._encode(_API_VERSIONS, version, request, answered=True)

    def welcome(self, frame: Buffer) -> int | None:
        """Process the response to `hello`; return the version for another `hello` (KIP-511).

        Raises `InvalidResponseError`, and `NegotiationError` with the error code of the response.
        """
        assert self._pending, "welcome follows hello"
        # The error code stands at the same place in all versions. With this code the body has
        # version 0, whatever version was requested (KIP-511).
        if bytes(memoryview(frame)[4:6]) == _UNSUPPORTED:
            response = self._decode(self._pending.popleft()._replace(version=0), frame)
        else:
            response = self.answer(frame)[1]
        assert isinstance(response, ApiVersionsResponse)
        for row in response.api_keys:
            self._versions[row.api_key] = (row.min_version, row.max_version)
        for feature in response.supported_features:
            self.features[feature.name] = (feature.min_version, feature.max_version)
        if bytes(memoryview(frame)[4:6]) == _UNSUPPORTED:
            highest = self._versions.get(_API_VERSIONS.key, (0, 0))[1]
            return min(highest, _API_VERSIONS.max_version)
        if response.error_code:
            raise NegotiationError(error_code(response.error_code))
        return None

    def version(self, api: Api, newest: int | None = None) -> int:
        """Return the newest common version, at most `newest`. Raises `NoCommonVersionError`."""
        low, high = self._versions.get(api.key, (1, 0))
        best = min(high, api.max_version if newest is None else min(newest, api.max_version))
        if best < max(low, api.min_version):
            ours = f"{api.min_version} to {api.max_version}"
            raise NoCommonVersionError(
                f"{api.name}: the broker supports {low} to {high}, this client {ours}"
            )
        return best

    def ask(
        self, request: Message, newest: int | None = None, *, answered: bool = True
    ) -> tuple[int, list[Buffer]]:
        """Return correlation id and frame of a request.

        answered: whether a response will come (not for Produce with acks=0).
        Raises `NoCommonVersionError`, and `WireError` for values that the version cannot carry.
        """
        api = api_for(type(request))
        version = self.version(api, newest)
        frame = self._encode(api, version, request, answered=answered)
        return self._last_id(), frame

    def answer(self, frame: Buffer) -> tuple[int, Message]:
        """Return correlation id and message of the next response. Raises `InvalidResponseError`."""
        if not self._pending:
            raise InvalidResponseError("a response without a request")
        pending = self._pending.popleft()
        return pending.correlation_id, self._decode(pending, frame)

    def _last_id(self) -> int:
        return self._next_id - 1 if self._next_id else _CORRELATION_MAX

    def _encode(self, api: Api, version: int, request: Message, *, answered: bool) -> list[Buffer]:
        correlation_id = self._next_id
        parts = encode_request(api, version, correlation_id, self._client_id, request)
        self._next_id = 0 if correlation_id == _CORRELATION_MAX else correlation_id + 1
        if answered:
            self._pending.append(Pending(correlation_id, api, version))
        return parts

    def _decode(self, pending: Pending, frame: Buffer) -> Message:
        api, version = pending.api, pending.version
        try:
            correlation_id, message = decode_response(api, version, frame)
        except WireError as error:
            raise InvalidResponseError(f"{api.name} v{version}: {error}") from error
        if correlation_id != pending.correlation_id:
            expected = pending.correlation_id
            raise InvalidResponseError(
                f"{api.name}: response {correlation_id} instead of {expected}"
            )
        result: Any = message
        assert isinstance(result, Message)
        return result
