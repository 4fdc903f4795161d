"""A connection over a socket that takes and gives as many bytes as a test says."""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from lakelog.base.endpoint import SecurityProtocol
from lakelog.base.memory_budget import Share
from lakelog.runtime.api import File
from lakelog.runtime.loop_iterations import LoopIterations
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.limits import Limits, SharedLimit
from lakelog.server.connections.receive_buffer import RequestMemory
from lakelog.server.connections.reply import Reply
from lakelog.server.connections.request_budget import RequestBudget
from lakelog.server.connections.request_sink import ProtocolViolation
from lakelog.server.connections.session import ClientSession
from lakelog.server.log_limits import ClosingLog
from lakelog.storage.segments.handles import LogSlice
from storage_kit import ManualClock

PRODUCE = 0
FETCH = 1
OTHER = 3


class FakeFile:
    """There is one for the same data."""

    _latest: FakeFile | None = None

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_at(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    @classmethod
    def of(cls, data: bytes) -> FakeFile:
        if cls._latest is None or cls._latest.data is not data:
            cls._latest = cls(data)
        return cls._latest


class FakeSlice(LogSlice):
    """The part of a slice that a connection uses."""

    def __init__(self, data: bytes, position: int = 0, size: int | None = None) -> None:
        self.file = FakeFile.of(data)  # type: ignore[assignment]
        self.position = position
        self.size = len(data) if size is None else size
        self.is_resident = None
        self.released = 0
        self.held = 0

    def beside(self, position: int, size: int) -> LogSlice:
        return FakeRange(self, position, size)

    def release(self) -> None:
        self.released += 1


class FakeRange(LogSlice):
    """Of the file of a slice, which it holds."""

    def __init__(self, whole: FakeSlice, position: int, size: int) -> None:
        self._whole = whole
        self.file = whole.file
        self.position = position
        self.size = size
        whole.held += 1

    def release(self) -> None:
        self._whole.held -= 1


def pages(offset: int, size: int) -> range:
    return range(offset // 4096, -(-(offset + size) // 4096))


class FakeTransport:
    """Socket, net, disk and tasks in one."""

    MSG_MORE = 0
    sends_files = True

    def __init__(self, seed: int | None = None) -> None:
        self.incoming = bytearray()
        self.eof = False
        self.is_reset = False
        self.sent = bytearray()
        self.capacity = 1 << 30
        self.calls_until_gone = 1 << 30
        self.sends = 0
        self.files_sent = 0
        self.readable: Callable[[], None] | None = None
        self.writable: Callable[[], None] | None = None
        self.cold: set[int] = set()
        """Pages of the only file that are not in the page cache."""
        self.marked: set[int] = set()
        """Pages whose first reader makes the kernel read ahead."""
        self.probes: list[tuple[int, int]] = []
        self.offloaded: list[Any] = []
        self.soon: deque[Callable[[], object]] = deque()
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self.socket_closed = False
        self.random = random.Random(seed) if seed is not None else None

    # Socket
    def fileno(self) -> int:
        return 3

    def getsockname(self) -> Any:
        return ("127.0.0.1", 9092)

    getpeername = getsockname

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = 0) -> int:
        if not self.incoming:
            if self.is_reset:
                raise ConnectionResetError
            if self.eof:
                return 0
            raise BlockingIOError
        size = min(len(buffer), len(self.incoming))
        if self.random is not None:
            size = self.random.randint(1, size)
        buffer[:size] = self.incoming[:size]
        del self.incoming[:size]
        return size

    def _take(self, size: int) -> int:
        self.calls_until_gone -= 1
        if self.calls_until_gone == -1:
            raise ConnectionResetError
        size = min(size, self.capacity)
        if not size:
            raise BlockingIOError
        if self.random is not None:
            size = self.random.randint(1, size)
        self.capacity -= size
        return size

    def send(self, data: Any, flags: int = 0) -> int:
        size = self._take(len(data))
        self.sends += 1
        self.sent += bytes(data)[:size]
        return size

    def close(self) -> None:
        self.socket_closed = True

    # Net
    def on_readable(self, sock: Any, callback: Callable[[], None] | None) -> None:
        self.readable = callback

    def on_writable(self, sock: Any, callback: Callable[[], None] | None) -> None:
        self.writable = callback

    def send_file(self, sock: Any, file: Any, offset: int, count: int) -> int:
        assert self.cold.isdisjoint(pages(offset, count)), "the loop waits for the device"
        assert self.marked.isdisjoint(pages(offset, count)), "the loop reads ahead"
        size = self._take(count)
        self.files_sent += 1
        self.sent += file.data[offset : offset + size]
        return size

    # Disk
    def is_resident(self, file: Any, offset: int, size: int) -> bool:
        self.probes.append((offset, size))
        return self.cold.isdisjoint(pages(offset, size))

    def read_resident(self, file: Any, offset: int, size: int) -> bytes | None:
        if self.cold.isdisjoint(pages(offset, size)):
            return bytes(file.data[offset : offset + size])
        return None

    def read_ahead(self, file: Any, offset: int, size: int) -> bool:
        before = len(self.cold) + len(self.marked)
        self.cold.difference_update(pages(offset, size))
        self.marked.difference_update(pages(offset, size))
        return len(self.cold) + len(self.marked) < before

    # Tasks
    def offload(self, lane: str, work: Callable[[], Any]) -> Any:
        job = FakeJob(work)
        self.offloaded.append(job)
        return job

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        self.timers.append((delay_s, callback))

    def run(self) -> None:
        """Until nothing more can happen."""
        for _ in range(100_000):
            if self.soon:
                self.soon.popleft()()
            elif self.readable and (self.incoming or self.eof):
                self.readable()
            elif self.writable and self.capacity:
                self.writable()
            else:
                return
        raise AssertionError("the connection spins")


class FakeJob:
    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.callback: Callable[[Any], None] | None = None
        self.failure: OSError | None = None
        self.found: Any = None

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.callback = callback

    def exception(self) -> OSError | None:
        return self.failure

    def result(self) -> Any:
        return self.found

    def finish(self) -> None:
        try:
            self.found = self.work()
        except OSError as failure:
            self.failure = failure
        assert self.callback is not None
        callback, self.callback = self.callback, None
        callback(self)


class Sink:
    """Keeps the requests, and answers at once unless `wait` is set."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.replies: list[Reply] = []
        self.wait = False
        self.violate = False
        self.at_once = False
        self.closed = 0
        self.failures: list[Exception] = []
        self.unreadable: list[tuple[Any, int | None]] = []
        self.slices: dict[bytes, FakeSlice] = {}

    def is_pipelined(self, api_key: int) -> bool:
        return api_key == PRODUCE

    def on_request(
        self, connection: Connection, view: memoryview, start: int, end: int, most: int
    ) -> tuple[int, int]:
        if self.violate:
            raise ProtocolViolation("planted")
        request = bytes(view[start:end])
        self.requests.append(request)
        if self.at_once:
            connection.responses.send_slice(self.slices[request], b"<<<", b">>>")
            return 1, end
        reply = Reply(connection, pipelined=request[1] == PRODUCE)
        connection.expect(reply)
        self.replies.append(reply)
        if not self.wait:
            reply.complete(self.answer(request))
        return 1, end

    def answer(self, request: bytes) -> list[Any]:
        found = self.slices.get(request)
        return [b"<" + request + b">"] if found is None else [b"<", found, b">"]

    def complete(self, index: int) -> None:
        self.replies[index].complete(self.answer(self.requests[index]))

    def on_violation(self, connection: Connection, violation: ProtocolViolation) -> None:
        connection.close()

    def on_failure(self, connection: Connection, what: str, error: Exception) -> None:
        self.failures.append(error)
        connection.close()

    def on_unreadable(self, file: File, error: OSError) -> None:
        self.unreadable.append((file, error.errno))

    def on_close(self, connection: Connection, abandoned: list[Reply]) -> None:
        self.closed += 1


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(number: int, key: int = OTHER, size: int = 8) -> bytes:
    return struct.pack(">hhi", key, 0, number) + b"x" * (size - 8)


def connect(
    seed: int | None = None,
    memory: RequestMemory | None = None,
    unread: SharedLimit | None = None,
    iterations: RequestBudget | None = None,
    sink: Sink | None = None,
    *,
    sends_files: bool = True,
) -> tuple[FakeTransport, Sink, Connection]:
    transport = FakeTransport(seed)
    transport.sends_files = sends_files
    sink = sink or Sink()
    connection = Connection(
        transport,
        ClientSession(transport, "PLAINTEXT", SecurityProtocol.PLAINTEXT),
        sink,
        transport,  # type: ignore[arg-type]
        transport,  # type: ignore[arg-type]
        transport,  # type: ignore[arg-type]
        Limits(
            8 << 20,
            memory or RequestMemory(Share(0)),
            unread or SharedLimit(Share(0), ClosingLog(ManualClock()), ""),
            iterations or RequestBudget(ManualClock(), LoopIterations(ManualClock(), transport)),  # type: ignore[arg-type]
        ),
    )
    connection.open()
    return transport, sink, connection


class CrowdedLoop:
    """Connections that share turns; a loop iteration runs due callbacks, then each ready socket.

    Only the work of a `WorkingSink` takes time.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: deque[Callable[[], object]] = deque()
        self.iterations = RequestBudget(self, LoopIterations(self, self))  # type: ignore[arg-type]
        self.transports: list[FakeTransport] = []

    def monotonic(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def connect(self, sink: Sink | None = None) -> tuple[FakeTransport, Sink, Connection]:
        found = connect(iterations=self.iterations, sink=sink)
        found[0].soon = self.soon
        self.transports.append(found[0])
        return found

    def iteration(self) -> int:
        """Bytes that were sent in it."""
        before = sum(len(transport.sent) for transport in self.transports)
        for _ in range(len(self.soon)):
            self.soon.popleft()()
        for transport in self.transports:
            if transport.readable and (transport.incoming or transport.eof):
                transport.readable()
            elif transport.writable and transport.capacity:
                transport.writable()
        return sum(len(transport.sent) for transport in self.transports) - before


class WorkingSink(Sink):
    """Each request, and each closed connection, takes `takes_s` of the loop."""

    def __init__(self, loop: CrowdedLoop, takes_s: float) -> None:
        super().__init__()
        self._loop = loop
        self._takes_s = takes_s

    def on_request(
        self, connection: Connection, view: memoryview, start: int, end: int, most: int
    ) -> tuple[int, int]:
        self._loop.now += self._takes_s
        return super().on_request(connection, view, start, end, most)

    def on_close(self, connection: Connection, abandoned: list[Reply]) -> None:
        self._loop.now += self._takes_s
        super().on_close(connection, abandoned)
