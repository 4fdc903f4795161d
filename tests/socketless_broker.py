"""A broker in this process whose network is in the test's hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doubles.randomness import SeededRandom
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.endpoint import SecurityProtocol
from lakelog.metadata.store.api import MetadataStore
from lakelog.metadata.store.chain import MARK_FILE, MarkFile
from lakelog.metadata.store.embedded import METADATA_FILE, EmbeddedStore
from lakelog.protocol.api import api_for
from lakelog.protocol.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.api import Clock, Disk, Listener, Socket
from lakelog.runtime.posix import PosixDisk, PythonProcesses
from lakelog.server.app import Server
from lakelog.server.authentication import Principal
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.session import ClientSession
from lakelog.server.options import Environment, ServeOptions
from lakelog.wire.framing import encode_request
from storage_kit import ManualClock


@dataclass
class FakeListener:
    """A listener to which nothing connects."""

    address: tuple[str, int]

    def accept(self) -> Socket:
        raise BlockingIOError

    def close(self) -> None:
        pass


class FakeSocket:
    """Socket and net in one; it keeps the sent bytes, also of files."""

    MSG_MORE = 0
    sends_files = True

    def __init__(self) -> None:
        self.incoming = bytearray()
        self.sent = bytearray()
        self.was_sent = asyncio.Event()
        self.readable: Callable[[], None] | None = None

    def fileno(self) -> int:
        return 3

    def getsockname(self) -> Any:
        return ("127.0.0.1", 9092)

    getpeername = getsockname

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = 0) -> int:
        if not self.incoming:
            raise BlockingIOError
        size = min(len(buffer), len(self.incoming))
        buffer[:size] = self.incoming[:size]
        del self.incoming[:size]
        return size

    def send(self, data: Any, flags: int = 0) -> int:
        self.sent += data
        self.was_sent.set()
        return len(data)

    def send_file(self, sock: Any, file: Any, offset: int, count: int) -> int:
        self.sent += file.read_at(offset, count)
        self.was_sent.set()
        return count

    def deliver(self, frames: bytes) -> None:
        """Have the broker receive all of these bytes."""
        self.incoming += frames
        while self.incoming:
            assert self.readable is not None
            self.readable()

    def close(self) -> None:
        pass

    def on_readable(self, sock: Any, callback: Callable[[], None] | None) -> None:
        self.readable = callback

    def on_writable(self, sock: Any, callback: Callable[[], None] | None) -> None:
        pass

    def listen(self, host: str, port: int, *, backlog: int) -> Listener:
        return FakeListener((host, port))

    async def connect(self, host: str, port: int, *, timeout_s: float) -> Any:
        raise ConnectionRefusedError(f"{host}:{port} is not in this test")

    def on_acceptable(self, listener: Any, callback: Any) -> None:
        pass


def request_frame(message: Any, version: int, correlation_id: int = 1) -> bytes:
    """Return a request as a client sends it, with its size in front."""
    api = api_for(type(message))
    return b"".join(encode_request(api, version, correlation_id, "test", message))


def _embedded(data: Path, clock: Clock) -> EmbeddedStore:
    return EmbeddedStore(data / METADATA_FILE, clock, marks=MarkFile(data / MARK_FILE))


class SocketlessBroker:
    """A server without a network, and the one connection to it that is spoken on."""

    def __init__(
        self,
        data: Path,
        disk: Disk | None = None,
        *,
        clock: Clock | None = None,
        metadata: Callable[[AsyncioTasks], MetadataStore] | None = None,
        repeats: bool = True,
        seed: int = 7,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Keys of `settings` have `_` for `.`. A broker with another seed is another process.

        clock: by default `self.clock`, which the test moves.
        """
        self.tasks = AsyncioTasks(asyncio.get_running_loop())
        self.disk = disk or PosixDisk()
        self.clock, net = ManualClock(), FakeSocket()
        clock = clock or self.clock
        world = Environment(
            clock,
            self.disk,
            net,
            self.tasks,
            SeededRandom(seed),
            PythonProcesses(),
            metadata(self.tasks) if metadata else _embedded(data, clock),
            64,
        )
        values = {key.replace("_", "."): text for key, text in (settings or {}).items()}
        config = BrokerConfig(values)
        self.server = Server(ServeOptions(data, config, "127.0.0.1:0"), world)
        self.data = data
        self.principal: Principal | None = None
        self.repeats = repeats

    async def start(self) -> None:
        await self.server.start()
        self.dispatcher = self.server._dispatcher
        if not self.repeats:
            for route in self.dispatcher._routes.values():
                route.cache_request = None
        self.connect()

    async def create_topic(
        self, name: str, config: Mapping[str, str] | None = None, *, partitions: int = 1
    ) -> None:
        """Create a topic by a request, and wait for the response."""
        configs = [
            CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()
        ]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=configs
        )
        self.socket.was_sent.clear()
        self.ask(request_frame(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7))
        await self.socket.was_sent.wait()
        self.take_answer()

    def connect(self) -> FakeSocket:
        """Use a new connection from now on, as `principal` if set; return its socket."""
        self.socket = FakeSocket()
        self.connection = self.connection_over(self.socket, 1 << 20)
        self.connection.open()
        return self.socket

    def connection_over(self, sock: FakeSocket, frame_size_max: int) -> Connection:
        """Return a connection that is not open yet."""
        return Connection(
            sock,
            self._session(sock),
            self.dispatcher,
            sock,
            self.disk,
            self.tasks,
            self.dispatcher.connections.limits(frame_size_max),
        )

    def _session(self, sock: FakeSocket) -> ClientSession:
        if self.principal is None:
            return ClientSession(sock, "PLAINTEXT", SecurityProtocol.PLAINTEXT)
        session = ClientSession(sock, "SASL", SecurityProtocol.SASL_PLAINTEXT)
        session.authentication.begin()
        session.authentication.succeed(self.principal)
        return session

    def ask(self, frames: bytes) -> bytes:
        """The bytes that come back for requests that arrive together."""
        iterations = self.dispatcher.connections.iterations
        self.socket.incoming += frames
        while (
            self.socket.incoming or iterations.waiting or iterations.sending.waiting
        ) and not self.connection.closed:
            if self.socket.incoming and self.socket.readable is not None:
                self.socket.readable()
            if iterations.loop_iterations.is_due:
                iterations.loop_iterations.next_iteration()
        return self.take_answer()

    def take_answer(self) -> bytes:
        answer = bytes(self.socket.sent)
        self.socket.sent.clear()
        return answer

    async def stop(self) -> None:
        await self.server.stop()
        self.tasks.close()
