"""Sockets, listeners and `Net` of `lakelog.runtime.api` over the simulated network."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from contextvars import Context
from typing import Protocol

from lakelog.runtime.api import Buffer, File
from simulator.engine.loop import SimulatedLoop
from simulator.engine.process import Process

Address = tuple[str, int]
"""Host name and port."""
Portion = bytes | str
"""Bytes, `END` or `RESET`."""
END = "end"
RESET = "reset"
WINDOW = 64 * 1024
"""Bytes that may be under way or unread before the sender has to wait, as TCP's window."""
_ITERATION_S_MAX = 0.000_2
"""The longest time from readiness to the callback, in seconds."""


class Carrier(Protocol):
    """The network, as sockets use it."""

    @property
    def loop(self) -> SimulatedLoop: ...
    @property
    def rng(self) -> random.Random: ...
    @property
    def faults(self) -> Counter[str]: ...
    @property
    def partial_chance(self) -> float: ...
    def carry(self, source: SimulatedSocket, portion: Portion) -> None: ...
    def listen(self, process: Process, host: str, port: int) -> SimulatedListener: ...
    async def connect(self, process: Process, address: Address) -> SimulatedSocket: ...
    def forget(self, listener: SimulatedListener) -> None: ...


class SimulatedSocket:
    """One end of a connection: a `lakelog.runtime.api.Socket`."""

    sends_files = True

    def __init__(self, net: Carrier, process: Process, name: Address, peer: Address) -> None:
        self._net = net
        self._name = name
        self._peer = peer
        self.process = process
        self.number = name[1] * 100_000 + peer[1]
        self.no_context = Context()
        self.other: SimulatedSocket
        self.coming: deque[Portion] = deque()
        self.due = 0.0
        """When the last of `coming` arrives, in the loop's time."""
        self._inbox = bytearray()
        self._ended = self._broken = False
        self.closed = False
        self._unread_by_peer = 0
        self.reader: Callable[[], None] | None = None
        self.writer: Callable[[], None] | None = None
        self._iteration_taken = False
        process.sockets.append(self)

    def fileno(self) -> int:
        return -1 if self.closed else self.number

    def getsockname(self) -> Address:
        return self._name

    def getpeername(self) -> Address:
        return self._peer

    # Sending and receiving

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = 0, /) -> int:
        self._check()
        if not self._inbox:
            if self._ended:
                return 0
            raise BlockingIOError
        count = self._some(min(len(buffer), nbytes or len(buffer), len(self._inbox)))
        buffer[:count] = self._inbox[:count]
        del self._inbox[:count]
        self.other.acknowledge(count)
        return count

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        self._check()
        capacity = WINDOW - self._unread_by_peer
        if capacity <= 0:
            raise BlockingIOError
        count = self._some(min(len(data), capacity))
        self._unread_by_peer += count
        self._net.carry(self, bytes(memoryview(data)[:count]))
        return count

    def _some(self, count: int) -> int:
        net = self._net
        if count > 1 and net.partial_chance and net.rng.random() < net.partial_chance:
            net.faults["partial"] += 1
            return net.rng.randint(1, count)
        return count

    def _check(self) -> None:
        if self.closed or not self.process.alive:
            raise OSError(9, "Bad file descriptor")
        if self._broken:
            raise ConnectionResetError(104, "Connection reset by peer")

    def close(self) -> None:
        """Close the end. Unread bytes make it a reset, as in TCP (RFC 9293, section 3.10.4)."""
        if not self.closed and self.process.alive:
            self.closed = True
            self.process.sockets.remove(self)
            if not self._broken:
                self._net.carry(self, RESET if self._inbox else END)

    # Called by the network

    def receive(self, portion: Portion) -> None:
        """Take a portion that arrived."""
        if isinstance(portion, bytes):
            self._inbox += portion
        elif portion == END:
            self._ended = True
        else:
            self._broken = True
            self._inbox.clear()
        self.wake()

    def acknowledge(self, count: int) -> None:
        """Note that the peer has read so many bytes."""
        self._unread_by_peer -= count
        assert 0 <= self._unread_by_peer <= WINDOW
        self.wake()

    # Readiness

    def wake(self) -> None:
        """Schedule the callbacks if the socket is ready for one of them."""
        if self._iteration_taken or self.closed or not (self._readable or self._writable):
            return
        self._iteration_taken = True
        delay = self._net.rng.random() * _ITERATION_S_MAX
        self._net.loop.call_later(delay, self._iteration, context=self.process.context())

    @property
    def _readable(self) -> bool:
        ready = bool(self._inbox) or self._ended or self._broken
        return self.reader is not None and ready

    @property
    def _writable(self) -> bool:
        ready = self._unread_by_peer < WINDOW or self._broken
        return self.writer is not None and ready

    def _iteration(self) -> None:
        self._iteration_taken = False
        if self._readable and not self.closed:
            assert self.reader is not None
            self.reader()
        if self._writable and not self.closed:
            assert self.writer is not None
            self.writer()
        self.wake()


class SimulatedListener:
    """A `lakelog.runtime.api.Listener` with an unlimited backlog."""

    def __init__(self, net: Carrier, process: Process, address: Address) -> None:
        self._net = net
        self.process = process
        self.address = address
        self._waiting: deque[SimulatedSocket] = deque()
        self.callback: Callable[[], None] | None = None

    def offer(self, socket: SimulatedSocket) -> None:
        """Add a connection to the backlog."""
        self._waiting.append(socket)
        self.wake()

    def accept(self) -> SimulatedSocket:
        if not self._waiting:
            raise BlockingIOError
        return self._waiting.popleft()

    def wake(self) -> None:
        if self._waiting and self.callback is not None:
            self._net.loop.call_soon(self._iteration, context=self.process.context())

    def _iteration(self) -> None:
        if self._waiting and self.callback is not None:
            self.callback()

    def close(self) -> None:
        if self.process.alive:
            self._net.forget(self)


class SimulatedNet:
    """The network as one process uses it: a `lakelog.runtime.api.Net`."""

    MSG_MORE = 0

    def __init__(self, net: Carrier, process: Process) -> None:
        self._net = net
        self._process = process

    def listen(self, host: str, port: int, *, backlog: int) -> SimulatedListener:
        return self._net.listen(self._process, host, port)

    async def connect(self, host: str, port: int, *, timeout_s: float) -> SimulatedSocket:
        async with asyncio.timeout(timeout_s):
            return await self._net.connect(self._process, (host, port))

    def on_acceptable(
        self, listener: SimulatedListener, callback: Callable[[], None] | None
    ) -> None:
        listener.callback = callback
        listener.wake()

    def on_readable(self, sock: SimulatedSocket, callback: Callable[[], None] | None) -> None:
        sock.reader = callback
        sock.wake()

    def on_writable(self, sock: SimulatedSocket, callback: Callable[[], None] | None) -> None:
        sock.writer = callback
        sock.wake()

    def send_file(self, sock: SimulatedSocket, file: File, offset: int, count: int) -> int:
        data = file.read_at(offset, count)
        return sock.send(data) if data else 0
