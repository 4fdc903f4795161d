"""The requesting side of a connection, without I/O: encodes requests, finds and decodes responses.

It knows no socket, no clock and no time limit; its callers do: `client/connection.py` blocks,
`server/inter_broker/` runs on the event loop.

Requests wait for their responses in a queue. Kafka's protocol guarantees that responses come in the
order of the requests; this module rejects a peer that breaks the order. It uses the newest version
of each API that both sides support. `hello` and `welcome` come first.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError, error_code
from lakelog.protocol.api import Api, api_for
from lakelog.protocol.connections import ApiVersionsRequest, ApiVersionsResponse
from lakelog.wire.framing import FRAME_SIZE_BYTES, decode_response, encode_request
from lakelog.wire.primitives import WireError
from lakelog.wire.schema import Buffer, Message


class NetworkClientError(KafkaError):
    """A network client cannot send a request, or cannot continue."""


class InvalidResponseError(NetworkClientError):
    """The peer broke the protocol; the position in its stream of bytes is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class NoCommonVersionError(NetworkClientError):
    """Both sides have no common version of an API. The request was not encoded."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class NegotiationError(NetworkClientError):
    """The peer answered ApiVersions with the error `code`.

    REBOOTSTRAP_REQUIRED: it belongs to another cluster, or has another node id (KIP-1242).
    """


MAX_RESPONSE_BYTES = (100 << 20) + (1 << 20)
"""Default limit of a response: a Fetch response of 100 MiB with its headers."""

_RESPONSE_MIN = 4
_HTTP = b"HTTP"
"""The first bytes of each answer of an HTTP server."""
_CAPACITY_MIN = 64 * 1024
_CAPACITY_KEPT_MAX = 1 << 20
"""After a large response as much memory is made again, up to this: the next is often as large."""
_COPIED_MAX = 8 * 1024
"""A response up to this size is copied, and the memory that received it is used again."""


def response_size(head: Buffer, most: int) -> int:
    """Return the size in bytes that the first four bytes of a frame announce.

    Raises `InvalidResponseError` for a size that no response has, or above `most`.
    """
    size = int.from_bytes(head, "big", signed=True)
    if not _RESPONSE_MIN <= size <= most:
        if bytes(head) == _HTTP:
            raise InvalidResponseError(
                "the answer is HTTP, not Kafka's protocol: the address is that of an HTTP server"
            )
        raise InvalidResponseError(f"a response of {size} bytes")
    return size


class ResponseFrames:
    """The received bytes of one connection that are not yet returned as responses.

    Memory grows with the bytes that arrive: a peer that announces a large response and sends little
    data costs nothing.

    The caller receives into `unfilled()` and reports the count with `received`. A large response is
    returned in the memory that received it, without a copy. The next one gets other memory, unless
    the caller holds no view of the response any more: new memory is cleared and mapped, which takes
    half as long as receiving.
    """

    def __init__(self, most: int = MAX_RESPONSE_BYTES) -> None:
        self._most = most
        self._memory = bytearray(_CAPACITY_MIN)
        self._view = memoryview(self._memory)
        self._start = self._end = 0
        """The bytes of `_view` that are received and not yet returned."""
        self._size = _CAPACITY_MIN
        """The size of the next memory, at least."""
        self._lent: bytearray | None = None
        """The memory of the last large response, if the next one may be as large."""

    def unfilled(self) -> memoryview:
        """Return the memory for the next received bytes, at least one.

        It grows fourfold when it is full: growing copies at most a third of a response.
        """
        if self._end == len(self._view):
            self._move(max(self._size, min(4 * (self._end - self._start), self._frame_size())))
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """Note that the first `count` bytes of `unfilled()` were received; `next` checks them."""
        self._end += count
        assert self._end <= len(self._view)

    def next(self) -> Buffer | None:
        """Return the next complete response without its size, or None.

        Raises `InvalidResponseError` as soon as a size is invalid.
        """
        body = self._start + FRAME_SIZE_BYTES
        if self._end < body:
            return None
        end = body + response_size(self._view[self._start : body], self._most)
        if self._end < end:
            return None
        frame = self._view[body:end]
        self._start = end
        if len(frame) > _COPIED_MAX:
            self._lend()
            return frame
        copy = bytes(frame)
        if self._start == self._end:
            self._start = self._end = 0
        return copy

    def _frame_size(self) -> int:
        """Return the size in bytes of the frame being received."""
        head = self._view[self._start : self._start + FRAME_SIZE_BYTES]
        if len(head) < FRAME_SIZE_BYTES:
            return 0
        return FRAME_SIZE_BYTES + response_size(head, self._most)

    def _lend(self) -> None:
        """Leave the memory to the response that was found in it."""
        memory, size = self._memory, self._start
        self._size = max(min(size, _CAPACITY_KEPT_MAX), _CAPACITY_MIN)
        # New memory is made when bytes come: the response may be done with by then.
        self._move(self._end - size)
        self._lent = memory if len(memory) <= 2 * _CAPACITY_KEPT_MAX else None

    def _move(self, size: int) -> None:
        """Go on in other memory of at least `size` bytes."""
        rest = self._view[self._start : self._end]
        assert len(rest) <= size
        lent, self._lent = self._lent, None
        if lent is None or len(lent) < size or not _is_free(lent):
            lent = bytearray(size)
        self._memory, self._view = lent, memoryview(lent)
        self._view[: len(rest)] = rest
        self._start, self._end = 0, len(rest)


def _is_free(memory: bytearray) -> bool:
    """Return whether there is no view of this memory, which is not empty."""
    try:
        memory.append(memory.pop())  # the size of memory with a view cannot change
    except BufferError:
        return False
    return True


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
