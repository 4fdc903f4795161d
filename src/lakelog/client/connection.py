"""A socket with a `Dialogue` on it: requests out, answers in, each with a time limit.

A connection belongs to one thread. It blocks; who has several of them waits with `selectors` and
then reads the one answer that is there. Any failure closes it, since what follows on the stream
could no longer be understood.
"""

from __future__ import annotations

import logging
import math
import socket
import struct
from types import TracebackType

from lakelog import __version__
from lakelog.base.events import event
from lakelog.client.address import Address, shown
from lakelog.client.dialogue import Dialogue
from lakelog.client.errors import ConnectionLostError, ProtocolError, UnreachableError
from lakelog.protocol.registry import api_for
from lakelog.wire.schema import Buffer, Message

_log = logging.getLogger(__name__)

MAX_RESPONSE_BYTES = (100 << 20) + (1 << 20)
"""Default bound of a frame: a fetch of 100 MiB and what surrounds it."""

_SIZE_BYTES = 4
_RESPONSE_MIN = 4
_IOV_MAX = 512


class Connection:
    """One broker connection, versions negotiated.

    `request` asks and waits. `send` and `receive` pipeline: answers come in the order of the
    requests. `receive` may raise `ConnectionLostError` or `ProtocolError`; the connection is
    closed then, and all that was in flight has an unknown outcome.
    """

    def __init__(
        self, sock: socket.socket, dialogue: Dialogue, max_response_bytes: int, where: str
    ) -> None:
        self._sock = sock
        self._where = where
        self._dialogue = dialogue
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
        """Connects and negotiates versions. `UnreachableError` if nobody answers."""
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
        connection = cls(sock, Dialogue(client_id, __version__), max_response_bytes, where)
        try:
            connection._negotiate(timeout_s)
        except BaseException:
            connection.close()
            raise
        _log.info("Connected to %s", where, extra=event("connected", address=where))
        return connection

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def is_stale(self) -> bool:
        """Whether the broker has hung up (or spoken unasked) while nothing was in flight."""
        if self._dialogue.in_flight:
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
        return self._dialogue.in_flight

    def fileno(self) -> int:
        return self._sock.fileno()

    def request(
        self, message: Message, *, newest: int | None = None, timeout_s: float = 30.0
    ) -> Message:
        """The answer to `message`, at a version of at most `newest`."""
        assert not self._dialogue.in_flight, "answers to earlier requests are still to come"
        self.send(message, newest=newest)
        return self.receive(timeout_s)[1]

    def send(self, message: Message, *, newest: int | None = None, answered: bool = True) -> int:
        """Sends a request and returns its correlation id."""
        correlation_id, parts = self._dialogue.ask(message, newest, answered=answered)
        if _log.isEnabledFor(logging.DEBUG):
            self._log_request(message, newest, correlation_id, parts)
        self._write(parts)
        return correlation_id

    def receive(self, timeout_s: float = 30.0) -> tuple[int, Message]:
        """Correlation id and message of the next answer."""
        try:
            frame = self._read_frame(timeout_s)
            correlation_id, message = self._dialogue.answer(frame)
        except BaseException as error:
            _log.info("Closing %s: %s", self._where, error, extra=event("connection_lost"))
            self.close()
            raise
        if _log.isEnabledFor(logging.DEBUG):
            self._log_response(message, correlation_id, len(frame))
        return correlation_id, message

    def version(self, request: type[Message], newest: int | None = None) -> int:
        """The version in which such a request would be sent."""
        return self._dialogue.version(api_for(request), newest)

    def close(self) -> None:
        """May be called again, and from another thread to end a wait."""
        self._open = False
        self._sock.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _log_request(
        self, message: Message, newest: int | None, correlation_id: int, parts: list[Buffer]
    ) -> None:
        api, size = api_for(type(message)), sum(map(len, parts))
        version = self._dialogue.version(api, newest)
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
        for _ in range(2):
            hello = self._dialogue.hello() if version is None else self._dialogue.hello(version)
            self._write(hello)
            version = self._dialogue.welcome(self._read_frame(timeout_s))
            if version is None:
                return
        raise ProtocolError("the broker refuses the versions that it offers")

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
        size = int.from_bytes(self._read(_SIZE_BYTES), "big", signed=True)
        if not _RESPONSE_MIN <= size <= self._max_response_bytes:
            raise ProtocolError(f"{self._where}: an answer of {size} bytes")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        """Exactly `size` bytes. The kernel fills memory only as data arrives, so a peer that
        promises much and sends little costs nothing."""
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
    """What happened in words: numbers of errors differ between systems."""
    return error.strerror or str(error)


def _after(parts: list[Buffer], sent: int) -> list[Buffer]:
    """What is left of `parts` when `sent` bytes of them are gone."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []
