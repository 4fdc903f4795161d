"""The context of a request: its connection, header and reply."""

from __future__ import annotations

from struct import Struct
from typing import Any

from lakelog.protocol.api import Api
from lakelog.server.authentication import Principal
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.reply import Reply, release, slices_of
from lakelog.wire.framing import FRAME_SIZE_BYTES, encode_response
from lakelog.wire.schema import Message

_PRODUCE = 0
_CORRELATION_ID = Struct(">i")


class Deferred:
    """The result of a handler that has kept the context and will call `context.reply`."""


DEFERRED = Deferred()


class Context(Reply):
    """One request except its body: header fields, connection, and methods to reply."""

    __slots__ = (
        "_correlation_id",
        "api",
        "begun",
        "client_id",
        "size_bytes",
        "throttle_ms",
        "version",
        "waiting_bytes",
        "was_rejected",
    )

    connection: Connection
    begun: float
    """Start of the request's handling, in seconds on the monotonic clock. Set, like `size_bytes`,
    only if the reply comes later."""
    size_bytes: int

    def __init__(
        self,
        connection: Connection,
        api: Api,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.connection = connection
        self.pipelined = api.key == _PRODUCE
        self.parts = None
        self.on_abandon = None
        self.on_complete = None
        self.api = api
        self._correlation_id = correlation_id
        self.version = version
        self.client_id = client_id or ""
        self.waiting_bytes = 0
        """Bytes that the share of waiting requests counts for this one (`WaitingRequests`)."""
        self.was_rejected = False
        """Whether the handler rejected a part of the request. The connection does not cache it: a
        repetition would skip the check that rejected it."""
        self.throttle_ms = 0
        """Time in ms for which the connection is muted after this request (KIP-219)."""

    @property
    def principal(self) -> Principal:
        """The identity of the client."""
        return self.connection.session.authentication.principal

    def reply(self, response: Any) -> None:
        """Complete the reply; with None the request has no response.

        A response that cannot be encoded is a bug, and closes the connection; nothing is raised.
        """
        if response is None:
            self.complete([])
            return
        if self.throttle_ms:
            response.throttle_time_ms = self.throttle_ms
        try:
            parts = encode_response(self.api, self.version, self._correlation_id, response)
        except Exception as error:  # noqa: BLE001 - no memory is one, too
            # The response owns ranges of files that no connection will release.
            release(slices_of(response))
            self.connection.fail(self.api.name, error)
            parts = []
        self.complete(parts)

    def fail(self, error: Exception) -> None:
        """Close the connection because of `error`, a bug, and complete the reply."""
        self.connection.fail(self.api.name, error)
        if self.parts is None:
            self.complete([])

    def encode(self, response: Message) -> bytes:
        """Return the frame of `response`, for `reply_encoded` of requests of this version.

        Raises `WireError` for values that the version cannot carry.
        """
        return b"".join(encode_response(self.api, self.version, 0, response))

    def reply_encoded(self, frame: bytes) -> None:
        """Complete the reply with a copy of `frame` that has the request's correlation id."""
        own = bytearray(frame)
        _CORRELATION_ID.pack_into(own, FRAME_SIZE_BYTES, self._correlation_id)
        self.complete([own])
