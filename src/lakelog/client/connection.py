"""A connection to a broker: sends requests and receives responses, each with a time limit.

A connection belongs to one thread and blocks. A caller with several connections waits with
`selectors` and then receives the response that has arrived. Any failure closes the connection,
because the position in the stream is then unknown.
"""

from __future__ import annotations

import logging
import math
import socket
import struct
from collections.abc import Mapping

from lakelog import __version__
from lakelog.base.closeable import Closeable
from lakelog.base.events import event
from lakelog.client.errors import (
    ConnectionLostError,
    ProtocolError,
    UnreachableError,
    of_network_client,
)
from lakelog.client.view import Address, shown
from lakelog.network_client import (
    MAX_RESPONSE_BYTES,
    NetworkClient,
    NetworkClientError,
    response_size,
)
from lakelog.protocol.api import api_for
from lakelog.wire.framing import FRAME_SIZE_BYTES
from lakelog.wire.schema import Buffer, Message

_log = logging.getLogger(__name__)

_IOV_MAX = 512


class Connection(Closeable):
    """A connection to one broker with negotiated versions.

    `request` sends and waits. `send` and `receive` pipeline: responses come in the order of the
    requests. If `receive` raises `ConnectionLostError` or `ProtocolError`, the connection is closed
    and all requests in flight have an unknown outcome.
    """

    def __init__(
        self,
        sock: socket.socket,
        network_client: NetworkClient,
        max_response_bytes: int,
        where: str,
    ) -> None:
        self._sock = sock
        self._where = where
        self._network_client = network_client
        self._max_response_bytes = max_response_bytes
        self._timeout_s = -1.0
        self._open = True

    @classmethod
    def open(
        cls,
        address: Address,
        *,
        client_id: str = "lakelog",
        timeout_s: float = 30.0,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> Connection:
        """Connect and negotiate versions.

        timeout_s: limit of each step, in seconds. max_response_bytes: a larger response closes the
        connection. Raises `UnreachableError`, `ConnectionLostError`, `ProtocolError`, and
        `UnsupportedError`.
        """
        where = shown(address)
        try:
            sock = socket.create_connection(address, timeout=timeout_s)
        except OSError as error:
            timed_out = isinstance(error, TimeoutError)
            reason = f"no connection within {timeout_s:g} s" if timed_out else _reason(error)
            _log.info("Cannot connect to %s: %s", where, reason, extra=event("connect_failed"))
            raise UnreachableError(f"{where}: {reason}", timed_out=timed_out) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(None)
        connection = cls(sock, NetworkClient(client_id, __version__), max_response_bytes, where)
        try:
            connection._negotiate(timeout_s)
        except NetworkClientError as error:
            connection.close()
            raise of_network_client(error) from error
        except BaseException:
            connection.close()
            raise
        _log.info("Connected to %s", where, extra=event("connected", address=where))
        return connection

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._open

    @property
    def features(self) -> Mapping[str, tuple[int, int]]:
        """Lowest and highest level of each feature that the broker supports (KIP-584)."""
        return self._network_client.features

    @property
    def is_stale(self) -> bool:
        """Whether the broker closed the connection, or sent data while no request was in flight."""
        if self._network_client.in_flight:
            return False
        try:
            self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    @property
    def in_flight(self) -> int:
        """Number of requests without a response yet."""
        return self._network_client.in_flight

    def fileno(self) -> int:
        """Return the socket's file descriptor, for a selector."""
        return self._sock.fileno()

    def request(
        self, message: Message, *, newest: int | None = None, timeout_s: float = 30.0
    ) -> Message:
        """Return the response to `message`, sent in a version of at most `newest`.

        Raises `ConnectionLostError`, `ProtocolError` and `UnsupportedError`. timeout_s: seconds.
        """
        assert not self._network_client.in_flight, "responses to earlier requests are pending"
        self.send(message, newest=newest)
        return self.receive(timeout_s)[1]

    def send(self, message: Message, *, newest: int | None = None, answered: bool = True) -> int:
        """Send a request and return its correlation id. Raises `ConnectionLostError`.

        answered: whether the broker will send a response (not for Produce with acks=0).
        """
        try:
            correlation_id, parts = self._network_client.ask(message, newest, answered=answered)
        except NetworkClientError as error:
            raise of_network_client(error) from error
        if _log.isEnabledFor(logging.DEBUG):
            self._log_request(message, newest, correlation_id, parts)
        self._write(parts)
        return correlation_id

    def receive(self, timeout_s: float = 30.0) -> tuple[int, Message]:
        """Return correlation id and message of the next response.

        Raises `ConnectionLostError` and `ProtocolError`; the connection is closed then. timeout_s:
        seconds.
        """
        try:
            frame = self._read_frame(timeout_s)
            correlation_id, message = self._network_client.answer(frame)
        except BaseException as error:
            _log.info("Closing %s: %s", self._where, error, extra=event("connection_lost"))
            # The position in the stream is unknown now: another read could start within a frame.
            self.close()
            if isinstance(error, NetworkClientError):
                raise of_network_client(error) from error
            raise
        if _log.isEnabledFor(logging.DEBUG):
            self._log_response(message, correlation_id, len(frame))
        return correlation_id, message

    def version(self, request: type[Message], newest: int | None = None) -> int:
        """Return the version in which such a request is sent. Raises `UnsupportedError`."""
        try:
            return self._network_client.version(api_for(request), newest)
        except NetworkClientError as error:
            raise of_network_client(error) from error

    def close(self) -> None:
        """Close the socket. May be called repeatedly, and from another thread to end a wait."""
        self._open = False
        self._sock.close()

    def _log_request(
        self, message: Message, newest: int | None, correlation_id: int, parts: list[Buffer]
    ) -> None:
        api, size = api_for(type(message)), sum(map(len, parts))
        version = self._network_client.version(api, newest)
        _log.debug(
            "%s v%d, %d bytes, to %s, correlation id %d",
            api.name,
            version,
            size,
            self._where,
            correlation_id,
            extra=event("request_sent", api=api.name, version=version, size_bytes=size),
        )

    def _log_response(self, message: Message, correlation_id: int, size: int) -> None:
        name = type(message).__name__
        _log.debug(
            "%s, %d bytes, from %s, correlation id %d",
            name,
            size,
            self._where,
            correlation_id,
            extra=event("response_received", response=name, size_bytes=size),
        )

    def _negotiate(self, timeout_s: float) -> None:
        version: int | None = None
        # A broker that does not know our version of ApiVersions names its own (KIP-511).
        for _ in range(2):
            self._write(self._network_client.hello(version))
            version = self._network_client.welcome(self._read_frame(timeout_s))
            if version is None:
                return
        raise ProtocolError("the broker rejects the versions that it offers")

    def _write(self, parts: list[Buffer]) -> None:
        if len(parts) > _IOV_MAX:
            parts = [b"".join(parts)]
        left = sum(map(len, parts))
        try:
            while True:
                sent = self._sock.sendmsg(parts)
                left -= sent
                if not left:
                    return
                parts = _after(parts, sent)
        except OSError as error:
            self.close()
            text = f"{self._where}: while sending: {_reason(error)}"
            timed_out = isinstance(error, BlockingIOError)
            raise ConnectionLostError(text, timed_out=timed_out) from error
        except BaseException:  # a signal: part of the request may have been sent
            self.close()
            raise

    def _read_frame(self, timeout_s: float) -> bytes:
        self._set_timeout(timeout_s)
        head = self._read(FRAME_SIZE_BYTES)
        try:
            size = response_size(head, self._max_response_bytes)
        except NetworkClientError as error:
            raise of_network_client(error, self._where) from error
        return self._read(size)

    def _read(self, size: int) -> bytes:
        """Return exactly `size` bytes.

        The kernel fills memory only as data arrives, so a peer that announces a large frame and
        sends little data costs nothing.
        """
        parts: list[bytes] = []
        left = size
        try:
            while left:
                part = self._sock.recv(left, socket.MSG_WAITALL)
                if not part:
                    raise ConnectionResetError("the broker closed the connection")
                parts.append(part)
                left -= len(part)
        except BlockingIOError as error:
            text = f"{self._where}: no answer within {self._timeout_s:g} s"
            raise ConnectionLostError(text, timed_out=True) from error
        except OSError as error:
            text = f"{self._where}: while waiting for an answer: {_reason(error)}"
            raise ConnectionLostError(text) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _set_timeout(self, timeout_s: float) -> None:
        if timeout_s == self._timeout_s:
            return
        fraction, whole = math.modf(max(timeout_s, 0.001))
        value = struct.pack("@ll", int(whole), int(fraction * 1e6))
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
        except OSError as error:
            text = f"{self._where}: while waiting for an answer: {_reason(error)}"
            raise ConnectionLostError(text) from error
        self._timeout_s = timeout_s


def _reason(error: OSError) -> str:
    """Return the description of an error; numbers of errors differ between systems."""
    return error.strerror or str(error)


def _after(parts: list[Buffer], sent: int) -> list[Buffer]:
    """Return `parts` without their first `sent` bytes."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []
