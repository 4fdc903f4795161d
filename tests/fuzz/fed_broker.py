"""A broker without a network, whose connections are fed byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakelog.protocol.api import api_for
from lakelog.protocol.topics import CreatableTopic, CreateTopicsRequest
from lakelog.runtime.api import Clock
from lakelog.runtime.posix import SystemClock
from lakelog.server.connections.connection import Connection
from lakelog.wire.framing import decode_response, encode_request
from socketless_broker import FakeSocket, SocketlessBroker
from wire_client import FETCH_VERSION, PRODUCE_VERSION, batch_of, fetch_request, produce_request

FRAME_SIZE_MAX = 104_857_600
_TOPIC = "good"


class FedSocket(FakeSocket):
    """Is fed with requests, and forgets its reader when it is closed."""

    def close(self) -> None:
        self.readable = None

    def on_writable(self, sock: Any, callback: Callable[[], None] | None) -> None:
        assert callback is None, "a fed socket takes everything"

    def feed(self, data: bytes) -> None:
        self.incoming += data
        while self.incoming and self.readable is not None:
            self.readable()

    async def ask(self, message: Any, version: int) -> Any:
        """The response; nothing else may be on its way."""
        api = api_for(type(message))
        self.sent.clear()
        self.was_sent.clear()
        self.feed(b"".join(encode_request(api, version, 5, "test", message)))
        await self.was_sent.wait()
        assert len(self.sent) == 4 + int.from_bytes(self.sent[:4], "big")
        return decode_response(api, version, bytes(self.sent[4:]))[1]


class FedBroker(SocketlessBroker):
    """An asynchronous context manager. The system's clock is the default."""

    def __init__(self, data: Path, clock: Clock | None = None) -> None:
        settings = {"offsets_topic_num_partitions": "3"}
        super().__init__(data, clock=clock or SystemClock(), settings=settings)

    async def __aenter__(self) -> FedBroker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def open(self, kind: type[FedSocket] = FedSocket) -> tuple[FedSocket, Connection]:
        """Return a new connection, which the broker counts, and its socket."""
        sock = kind()
        connection = self.connection_over(sock, FRAME_SIZE_MAX)
        self.dispatcher.connections.add(connection)
        connection.open()
        return sock, connection


class Good:
    """A client that writes records and reads them back."""

    def __init__(self, sock: FedSocket) -> None:
        self._sock = sock
        self._count = 0

    async def ask(self, message: Any, version: int) -> Any:
        return await self._sock.ask(message, version)

    async def check(self) -> None:
        value = b"value %d" % self._count
        produced = await self.ask(produce_request(_TOPIC, batch_of(value)), PRODUCE_VERSION)
        (answer,) = produced.responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (0, self._count)
        fetched = await self.ask(fetch_request(_TOPIC, self._count), FETCH_VERSION)
        assert value in bytes(fetched.responses[0].partitions[0].records)
        self._count += 1


async def create(good: Good) -> None:
    topic = CreatableTopic(name=_TOPIC, num_partitions=1, replication_factor=1)
    created = await good.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    assert created.topics[0].error_code == 0
