"""Network and tasks on the standard asyncio loop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from lakelog.runtime.api import File, Listener, Socket, Timer

T = TypeVar("T")

_NOT_SENT_LOWAT: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)
_NOT_SENT_MAX = 512 * 1024
"""Maximum number of unsent bytes that a socket accepts.

The kernel's own limit is 4 MiB: 1,500 peers that do not read would fill the memory of all TCP
connections (`tcp_mem`), and other connections would stall. SO_SNDBUF would also limit the bytes in
flight, and so the throughput to a distant peer.
"""
_LANE_THREADS_MAX = 4
_LANE_THREADS = {"close": 16}
"""Lanes of pure waits for the device, which are faster when more of them wait at the same time."""


class TcpSocket(socket.socket):
    """A connection without encryption."""

    sends_files = True


class TcpListener:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._sock.getsockname()[:2]
        return host, port

    def fileno(self) -> int:
        return self._sock.fileno()

    def accept(self) -> Socket:
        accepted, _ = self._sock.accept()
        kind = accepted.family, accepted.type, accepted.proto
        connection = TcpSocket(*kind, fileno=accepted.detach())
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _NOT_SENT_LOWAT is not None:
            connection.setsockopt(socket.IPPROTO_TCP, _NOT_SENT_LOWAT, _NOT_SENT_MAX)
        return connection

    def close(self) -> None:
        self._sock.close()


class AsyncioNet:
    MSG_MORE = getattr(socket, "MSG_MORE", 0)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def listen(self, host: str, port: int, *, backlog: int) -> TcpListener:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(backlog)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        return TcpListener(sock)

    def on_acceptable(self, listener: Listener, callback: Callable[[], None] | None) -> None:
        self._on_readable(cast(TcpListener, listener).fileno(), callback)

    def on_readable(self, sock: Socket, callback: Callable[[], None] | None) -> None:
        self._on_readable(sock.fileno(), callback)

    def _on_readable(self, fd: int, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._loop.remove_reader(fd)
        else:
            self._loop.add_reader(fd, callback)

    def on_writable(self, sock: Socket, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._loop.remove_writer(sock.fileno())
        else:
            self._loop.add_writer(sock.fileno(), callback)

    def send_file(self, sock: Socket, file: File, offset: int, count: int) -> int:
        return os.sendfile(sock.fileno(), file.fileno(), offset, count)


class AsyncioTasks:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lanes: dict[str, ThreadPoolExecutor] = {}

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        return self._loop.call_later(delay_s, callback, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        return self._loop.create_task(coroutine, name=name)

    def future(self) -> asyncio.Future[Any]:
        return self._loop.create_future()

    def offload(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:
        executor = self._lanes.get(lane)
        if executor is None:
            threads = _LANE_THREADS.get(lane, _LANE_THREADS_MAX)
            executor = ThreadPoolExecutor(threads, thread_name_prefix=f"lakelog-{lane}")
            self._lanes[lane] = executor
        return self._loop.run_in_executor(executor, work)

    def close(self) -> None:
        """Wait for the running work and end all threads."""
        for executor in self._lanes.values():
            executor.shutdown()
