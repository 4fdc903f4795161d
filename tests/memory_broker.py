"""A broker in memory, whose handlers a test calls without a network.

The broker is the one of production: `Server` builds it of its own parts. Only the edges differ, and
each of them is an interface that mypy compares: time is virtual, the disk and the metadata store
are memory and fail on demand, threads run at once, and sockets keep the sent bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, overload

from doubles.disk import MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.endpoint import Endpoint, SecurityProtocol
from lakelog.metadata.controller.topics import NewTopic, TopicReference, plan_delete_topics
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerRecord, PartitionRecord
from lakelog.protocol.api import api_for
from lakelog.replica.partition import Partition
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.api import Buffer, File, Listener, Socket
from lakelog.runtime.posix import PythonProcesses
from lakelog.server.app import Server
from lakelog.server.authentication import broker_principal
from lakelog.server.broker import Broker
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.reply import Reply
from lakelog.server.connections.request_sink import ProtocolViolation
from lakelog.server.connections.session import ClientSession
from lakelog.server.options import Environment, ServeOptions
from lakelog.server.requests.context import DEFERRED, Context, Deferred
from lakelog.wire.codec import decode_prefix
from lakelog.wire.framing import decode_request_header, decode_response, encode_request
from lakelog.wire.schema import Message
from memory_metadata import MemoryMetadata
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from storage_kit import make_batch

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
T = TypeVar("T")

DATA = Path("/data")
LOCAL, PEER = ("127.0.0.1", 9092), ("10.0.0.1", 40_000)
CLIENT_ID = "a client"
_CORRELATION_ID = 7
_LONGEST_S = 3600
_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "lakelog.disk.reserve.bytes": "0",
}


class MemorySocket:
    """A connected socket that keeps the sent bytes."""

    sends_files = True

    def __init__(self) -> None:
        self.sent = bytearray()
        self.was_sent = asyncio.Event()

    def fileno(self) -> int:
        return 3

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = 0, /) -> int:
        raise BlockingIOError

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        self.sent += data
        self.was_sent.set()
        return len(data)

    def getsockname(self) -> tuple[str, int]:
        return LOCAL

    def getpeername(self) -> tuple[str, int]:
        return PEER

    def close(self) -> None:
        self.was_sent.set()


class MemoryListener:
    """A listener to which nothing connects."""

    address = LOCAL

    def accept(self) -> Socket:
        raise BlockingIOError

    def close(self) -> None:
        pass


class MemoryNet:
    """A `Net` of `MemorySocket`s, which are always writable and never readable."""

    MSG_MORE = 0

    def listen(self, host: str, port: int, *, backlog: int) -> Listener:
        return MemoryListener()

    async def connect(self, host: str, port: int, *, timeout_s: float) -> Socket:
        raise ConnectionRefusedError(f"nothing listens at {host}:{port}")

    def on_acceptable(self, listener: Listener, callback: Callable[[], None] | None) -> None:
        pass

    def on_readable(self, sock: Socket, callback: Callable[[], None] | None) -> None:
        pass

    def on_writable(self, sock: Socket, callback: Callable[[], None] | None) -> None:
        pass

    def send_file(self, sock: Socket, file: File, offset: int, count: int) -> int:
        return sock.send(file.read_at(offset, count))


class InlineTasks(AsyncioTasks):
    """Tasks of a loop whose threads are done at once."""

    def offload(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self._loop.create_future()
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - the caller awaits it
            done.set_exception(error)
        return done


class ClosedSink:
    """The sink of connections on which nothing is received; it keeps why they were closed."""

    def __init__(self) -> None:
        self.violations: list[ProtocolViolation] = []

    def is_pipelined(self, api_key: int) -> bool:
        raise NotImplementedError

    def on_request(
        self, connection: Connection, view: memoryview, start: int, end: int, most: int
    ) -> tuple[int, int]:
        raise NotImplementedError

    def on_violation(self, connection: Connection, violation: ProtocolViolation) -> None:
        self.violations.append(violation)
        connection.close()

    def on_failure(self, connection: Connection, what: str, error: Exception) -> None:
        raise AssertionError(what) from error

    def on_unreadable(self, file: File, error: OSError) -> None:
        raise NotImplementedError

    def on_close(self, connection: Connection, abandoned: list[Reply]) -> None:
        pass


class Asked(Generic[A]):
    """A request that a handler has been called with."""

    def __init__(self, world: MemoryBroker, context: Context, socket: MemorySocket) -> None:
        self._world = world
        self.context = context
        self._socket = socket

    @property
    def is_answered(self) -> bool:
        return self.context.parts is not None

    async def sent(self) -> None:
        """Wait until the response is sent."""
        await self._socket.was_sent.wait()

    def response(self) -> A:
        """Return the response as its client decodes it, once it is sent."""
        if not self._socket.was_sent.is_set():
            self._world.run(self._socket.was_sent.wait())
        assert not self.context.connection.closed
        frame = memoryview(bytes(self._socket.sent))[4:]
        correlation_id, response = decode_response(self.context.api, self.context.version, frame)
        assert correlation_id == _CORRELATION_ID
        found: A = response
        return found


class MemoryBroker:
    """A started broker. `settings` are of its configuration, with `_` for `.`.

    Attributes:
        disk: fails on demand (`MemoryDisk.fail`), or is full (`capacity`).
        metadata: fails on demand (`MemoryMetadata.fault`).
    """

    def __init__(self, **settings: str) -> None:
        self._static = _SETTINGS | _dotted(settings)
        self.loop = SimulatedLoop(None)
        self.clock = SimulatedClock(self.loop)
        self.disk = MemoryDisk(self.clock)
        self.tasks = InlineTasks(self.loop)
        self.metadata = MemoryMetadata()
        self._net = MemoryNet()
        self._environment = Environment(
            self.clock,
            self.disk,
            self._net,
            self.tasks,
            SeededRandom(1),
            PythonProcesses(),
            self.metadata,
            open_files_max=64,
        )
        self._use(BrokerConfig(self._static))

    def _use(self, config: BrokerConfig) -> None:
        self._server = Server(ServeOptions(DATA, config, "127.0.0.1:0"), self._environment)
        self.broker: Broker = self._server.broker

    def restart(self, **forced: str) -> None:
        """Stop the broker, and start another in its folder with settings of the command line."""
        self.run(self._server.stop())
        given = _dotted(forced)
        self._use(BrokerConfig(self._static | given, forced=frozenset(given)))
        self.run(self._server.start())

    def __enter__(self) -> Self:
        self.run(self._server.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.metadata.fault = self.disk.capacity = None
        self.disk.forget_faults()
        try:
            self.run(self._server.stop())
            self.run(self._end_tasks())
        finally:
            self.loop.close()

    async def _end_tasks(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def run(self, work: Awaitable[T]) -> T:
        """Return the result of `work`, which may take an hour of virtual time."""

        async def wait() -> T:
            async with asyncio.timeout(_LONGEST_S):
                return await work

        return self.loop.run_until_complete(wait())

    def pass_time(self, seconds: float) -> None:
        """Run the broker for so long."""
        self.run(asyncio.sleep(seconds))

    # Asking

    @overload
    def ask(
        self,
        handle: Callable[[Broker, Context, Q], Awaitable[A]],
        request: Q,
        version: int,
        *,
        sender: int | None = None,
    ) -> A: ...

    @overload
    def ask(
        self,
        handle: Callable[
            [Broker, Context, Q], A | Awaitable[A | Deferred | None] | Deferred | None
        ],
        request: Q,
        version: int,
        *,
        sender: int | None = None,
    ) -> A: ...

    def ask(
        self,
        handle: Callable[[Broker, Context, Q], Any],
        request: Q,
        version: int,
        *,
        sender: int | None = None,
    ) -> Any:
        """Return the response as a client of this version decodes it; `sender` is a broker."""
        asked: Asked[Any] = self.start(handle, request, version, sender=sender)
        return asked.response()

    def start(
        self,
        handle: Callable[[Broker, Context, Q], Any],
        request: Q,
        version: int,
        *,
        sender: int | None = None,
    ) -> Asked[Any]:
        """Call a handler with the request as a client of this version encodes it."""
        context, received, socket = self._receive(request, version)
        if sender is not None:
            authentication = context.connection.session.authentication
            authentication.begin()
            authentication.succeed(broker_principal(sender))
        context.connection.expect(context)
        result = handle(self.broker, context, received)
        if isinstance(result, Awaitable):
            self.tasks.spawn(_reply_later(context, result), name="a handler")
        elif result is not DEFERRED:
            context.reply(result)
        return Asked(self, context, socket)

    def _receive(self, request: Q, version: int) -> tuple[Context, Q, MemorySocket]:
        api = api_for(type(request))
        parts = encode_request(api, version, _CORRELATION_ID, CLIENT_ID, request)
        frame = bytearray().join(parts)
        view = memoryview(frame)
        correlation_id, client_id, body = decode_request_header(
            view, 4, len(frame), flexible=version >= api.flexible_from
        )
        received, _ = decode_prefix(type(request), view, version, body, len(frame))
        connection, socket = self._connect()
        return Context(connection, api, version, correlation_id, client_id), received, socket

    def _connect(self) -> tuple[Connection, MemorySocket]:
        socket, registry = MemorySocket(), self._server._dispatcher.connections
        connection = Connection(
            socket,
            ClientSession(socket, "PLAINTEXT", SecurityProtocol.PLAINTEXT),
            ClosedSink(),
            self._net,
            self.disk,
            self.tasks,
            registry.limits(1 << 20),
        )
        return connection, socket

    # Contents

    def create(self, name: str, partitions: int = 1, /, **configs: str) -> bytes:
        """Create a topic; return its id. `configs` have `_` for `.`."""
        settings = list(_dotted(configs).items())
        topic = NewTopic(name, partitions=partitions, replication_factor=1, configs=settings)
        (result,) = self.run(self.broker.topics.create([topic]))
        assert not result.error, result
        return result.topic_id

    def delete(self, name: str) -> None:
        """Delete a topic."""
        gone = [TopicReference(name)]
        self.run(self.broker.metadata.submit(lambda image: plan_delete_topics(image, gone)))

    def start_coordinators(self) -> None:
        """Create the coordinators' topics, and load them."""
        self.run(self.broker.topics.ensure_group_topic())
        self.run(self.broker.topics.ensure_transaction_topic())
        self.pass_time(0.001)

    def register(self, node_id: int, host: str, port: int) -> None:
        """Register another broker, of which nothing runs."""
        endpoint = Endpoint("PLAINTEXT", host, port)
        record = BrokerRecord(node_id, bytes([node_id]) * 16, 1, (endpoint,), None)
        self.run(self.broker.metadata.submit(lambda image: Plan((record,), None)))

    def change_leader(
        self, topic: str, leader: int, isr: tuple[int, ...], *, index: int = 0, raises: int = 1
    ) -> None:
        """Give a partition a leader, and an ISR which is also its replicas.

        raises: the number of leader epochs that pass; 0 for a change of the ISR alone.
        """

        def plan(image: MetadataImage) -> Plan[None]:
            found = image.topic(topic)
            assert found is not None
            old = found.partitions[index]
            replicas = tuple({*old.replicas, *isr})
            epochs = (old.leader_epoch + raises, old.partition_epoch + 1)
            record = PartitionRecord(found.topic_id, index, replicas, isr, leader, *epochs)
            return Plan((record,), None)

        self.run(self.broker.metadata.submit(plan))

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.broker.partitions.leader(topic, index)

    def append(self, topic: str, index: int = 0, *, count: int = 1, **of_batch: Any) -> int:
        """Append a batch of `make_batch`; return its base offset."""
        batch = make_batch(count, **({"timestamp": self.clock.wall_ms()} | of_batch))
        return self.partition(topic, index).append(batch, self.clock.wall_ms()).base_offset


def _dotted(settings: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}


async def _reply_later(context: Context, result: Awaitable[Any]) -> None:
    response = await result
    if response is not DEFERRED:
        context.reply(response)
