"""The dispatcher behind a real listener, with handlers of the test, and clients of it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Self

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.memory_budget import MemoryBudget
from lakelog.protocol.api import api_for
from lakelog.protocol.connections import ApiVersionsRequest, ApiVersionsResponse
from lakelog.protocol.fetch import FetchRequest
from lakelog.protocol.groups import HeartbeatRequest
from lakelog.protocol.metadata import MetadataRequest
from lakelog.protocol.produce import ProduceRequest
from lakelog.runtime.aio import AsyncioNet, AsyncioTasks
from lakelog.runtime.loop_iterations import LoopIterations
from lakelog.runtime.posix import PosixDisk, SystemClock
from lakelog.server.authentication import BrokersApart, NoQuotas
from lakelog.server.connections.listeners import Acceptor, ConnectionRegistry
from lakelog.server.requests.admission import Admission
from lakelog.server.requests.context import Context
from lakelog.server.requests.dispatch import Dispatcher, Route
from lakelog.server.requests.metrics import RequestMetrics
from lakelog.wire.framing import decode_response, encode_request

PRODUCE, FETCH, METADATA, HEARTBEAT, API_VERSIONS = 0, 1, 3, 12, 18
MESSAGES: dict[int, type[Any]] = {
    PRODUCE: ProduceRequest,
    FETCH: FetchRequest,
    METADATA: MetadataRequest,
    HEARTBEAT: HeartbeatRequest,
    API_VERSIONS: ApiVersionsRequest,
}
FUTURE_VERSION = 99


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next_id = 7

    @staticmethod
    def frame(message: Any, version: int, correlation_id: int = 1) -> bytes:
        api = api_for(type(message))
        return b"".join(encode_request(api, version, correlation_id, "a client", message))

    def send(self, message: Any, version: int, *, extra: bytes = b"") -> int:
        """Returns the correlation id. `extra` bytes follow the message within the frame."""
        self._next_id += 1
        self.send_frame(self.frame(message, version, self._next_id)[4:] + extra)
        return self._next_id

    def send_frame(self, frame: bytes) -> None:
        self._writer.write(struct.pack(">i", len(frame)) + frame)

    async def receive(self, key: int, version: int) -> tuple[int, Any]:
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        data = await self._reader.readexactly(size)
        return decode_response(api_for(MESSAGES[key]), version, data)

    async def call(self, message: Any, version: int) -> Any:
        sent = self.send(message, version)
        answered, response = await self.receive(api_for(type(message)).key, version)
        assert answered == sent
        return response

    async def is_closed_by_broker(self) -> bool:
        try:
            return await self._reader.read(1) == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionResetError):
            await self._writer.wait_closed()


class ListeningDispatcher:
    """A dispatcher behind a listener; `handlers` by API key."""

    def __init__(
        self,
        handlers: dict[int, Callable[[Context, Any], Any]],
        *,
        memory_max: int = 0,
        unread_max: int = 0,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.tasks = AsyncioTasks(loop)
        net, clock, config = AsyncioNet(loop), SystemClock(), BrokerConfig({})
        routes = {
            key: Route(api_for(MESSAGES[key]), handler, in_place=key == PRODUCE)
            for key, handler in handlers.items()
        }
        self.unsupported: list[int] = []
        self.requests = RequestMetrics(clock)
        self._clients: list[Client] = []
        self.dispatcher = Dispatcher(
            routes,
            self._newer_api_versions,
            ConnectionRegistry(
                clock,
                LoopIterations(clock, self.tasks),
                MemoryBudget(memory_max, unread_max=unread_max),
            ),
            self.tasks,
            self.requests,
            Admission(BrokersApart(()), NoQuotas()),
            lambda file, error: None,
        )
        self.acceptor = Acceptor(
            "PLAINTEXT",
            net.listen("127.0.0.1", 0, backlog=8),
            self.dispatcher,
            self.dispatcher.connections,
            net,
            PosixDisk(),
            self.tasks,
            clock,
            lambda: config,
            connections_max=1000,
        )
        self.acceptor.start()

    def _newer_api_versions(self, context: Context, request: Any) -> ApiVersionsResponse:
        assert request == ApiVersionsRequest()
        self.unsupported.append(context.version)
        return ApiVersionsResponse(error_code=35)

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection(*self.acceptor.address))
        self._clients.append(client)
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()
        self.acceptor.close()
        for connection in list(self.dispatcher.connections):
            connection.close()
        self.tasks.close()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))
