"""Network and tasks on the standard asyncio loop."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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


def _prepared(sock: TcpSocket) -> TcpSocket:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if _NOT_SENT_LOWAT is not None:
        sock.setsockopt(socket.IPPROTO_TCP, _NOT_SENT_LOWAT, _NOT_SENT_MAX)
    return sock


def _addresses(host: str, port: int, flags: int = 0) -> list[Any]:
    return [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)]


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
        # The descriptor moves into our own class, because `accept` returns a plain socket.
        kind = accepted.family, accepted.type, accepted.proto
        return _prepared(TcpSocket(*kind, fileno=accepted.detach()))

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

    async def connect(self, host: str, port: int, *, timeout_s: float) -> TcpSocket:
        """Try the addresses of the host in turn; each gets an equal share of the time.

        timeout_s: of all addresses together. Raises the `OSError` of the last address.
        """
        async with asyncio.timeout(timeout_s):
            addresses = await self._resolve(host, port)
            failure: OSError = OSError(f"{host} has no address")
            for family, kind, protocol, _, address in addresses:
                try:
                    async with asyncio.timeout(timeout_s / len(addresses)):
                        return await self._connect(TcpSocket(family, kind, protocol), address)
                except OSError as error:
                    failure = error
            raise failure

    async def _resolve(self, host: str, port: int) -> list[Any]:
        """Return the addresses of a host as `getaddrinfo` does. A number needs no thread."""
        with suppress(socket.gaierror):
            return _addresses(host, port, socket.AI_NUMERICHOST)
        future: asyncio.Future[list[Any]] = self._loop.create_future()

        def complete(result: list[Any] | None, error: Exception | None) -> None:
            if not future.done():
                future.set_result(result or []) if error is None else future.set_exception(error)

        def resolve() -> None:
            result, failure = None, None
            try:
                result = _addresses(host, port)
            except (OSError, UnicodeError) as error:
                failure = error
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(complete, result, failure)

        # A daemon: it may wait for DNS longer than the broker takes to stop.
        threading.Thread(target=resolve, name="lakelog-resolve", daemon=True).start()
        return await future

    async def _connect(self, sock: TcpSocket, address: Any) -> TcpSocket:
        try:
            await self._loop.sock_connect(_prepared(sock), address)
        except OSError as error:
            sock.close()
            if error.errno is None:
                raise
            # asyncio's text has no reason: "Connect call failed".
            raise OSError(error.errno, os.strerror(error.errno)) from error
        except BaseException:
            sock.close()
            raise
        return sock

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
        self.future: Callable[[], asyncio.Future[Any]] = loop.create_future

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        return self._loop.call_later(delay_s, callback, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        return self._loop.create_task(coroutine, name=name)

    def offload(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:
        # One executor for each lane: a slow flush must not delay a read that a client waits for.
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
