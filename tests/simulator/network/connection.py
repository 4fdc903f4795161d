"""A simulated client's connection: pipelined requests over the simulated network.

`lakelog.wire` encodes them; the oracle tests compare it with Apache Kafka's own classes. If a
response does not arrive, the outcome of the request is unknown: `call` raises `NoResponse`, and the
connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from lakelog.protocol.api import Api, api_for
from lakelog.protocol.fetch import FetchRequest
from lakelog.protocol.groups import JoinGroupRequest, SyncGroupRequest
from lakelog.wire.framing import decode_response, encode_request
from simulator.engine.process import Process
from simulator.network.network import Network
from simulator.network.sockets import Address, SimulatedNet, SimulatedSocket

PATIENCE_S = 5.0
"""The default timeout in seconds: a reachable broker responds sooner."""
LATE_S = 2.0
"""Seconds after which a response counts as late if the broker need not wait for anything."""
_WAITING = (FetchRequest, JoinGroupRequest, SyncGroupRequest)
"""Requests whose responses wait for other members or for more records."""
_RECEIVE_SIZE = 64 * 1024


class NoResponse(Exception):  # noqa: N818 - an event
    """No response: the outcome of the request is unknown."""


class ClientConnection:
    """A connection of `process` to one broker; the first call after each loss opens it again."""

    def __init__(
        self,
        net: Network,
        process: Process,
        address: Address,
        on_late: Callable[[str, float], None] = lambda request, asked_at: None,
    ) -> None:
        """`on_late` is called with the name and the time of a request without a timely response."""
        self._network = net
        self._net = SimulatedNet(net, process)
        self._process = process
        self._address = address
        self._on_late = on_late
        self._socket: SimulatedSocket | None = None
        self._connecting: asyncio.Lock = asyncio.Lock()
        self._received = bytearray()
        self._unsent = bytearray()
        self._waiting: dict[int, tuple[Api, int, asyncio.Future[Any]]] = {}
        self._number = 0

    async def call(self, message: Any, version: int, timeout_s: float = PATIENCE_S) -> Any:
        """Send a request and return the response. Raises `NoResponse`."""
        asked_at = self._network.loop.time()
        try:
            async with asyncio.timeout(timeout_s):
                await self._connect()
                answer = await self._send(message, version)
        except (TimeoutError, OSError) as error:
            self.close()
            if isinstance(error, TimeoutError) and timeout_s >= PATIENCE_S:
                self._on_late(type(message).__name__, asked_at)
            raise NoResponse(str(error)) from error
        if type(message) not in _WAITING and self._network.loop.time() - asked_at > LATE_S:
            self._on_late(type(message).__name__, asked_at)
        return answer

    async def cast(self, message: Any, version: int) -> None:
        """Send a request that has no response (acks=0). Raises `NoResponse`."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._connect()
        except (TimeoutError, OSError) as error:
            self.close()
            raise NoResponse(str(error)) from error
        self._send(message, version, answered=False)

    async def _connect(self) -> None:
        async with self._connecting:
            if self._socket is None:
                socket = await self._network.connect(self._process, self._address)
                self._socket = socket
                self._net.on_readable(socket, self._on_readable)

    def _send(self, message: Any, version: int, *, answered: bool = True) -> asyncio.Future[Any]:
        self._number += 1
        api = api_for(type(message))
        frame = b"".join(encode_request(api, version, self._number, self._process.host, message))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if answered:
            self._waiting[self._number] = api, version, future
        self._unsent += frame
        self._on_writable()
        return future

    def _on_writable(self) -> None:
        socket = self._socket
        if socket is None:
            return
        try:
            while self._unsent:
                del self._unsent[: socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        self._net.on_writable(socket, self._on_writable if self._unsent else None)

    def _on_readable(self) -> None:
        assert self._socket is not None
        buffer = bytearray(_RECEIVE_SIZE)
        try:
            count = self._socket.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self.close()
            return
        self._received += buffer[:count]
        while len(self._received) >= 4:
            size = int.from_bytes(self._received[:4], "big")
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            self._answer(frame)

    def _answer(self, frame: bytes) -> None:
        number = int.from_bytes(frame[:4], "big")
        assert number == next(iter(self._waiting)), "responses come in the order of the requests"
        api, version, future = self._waiting.pop(number)
        _, response = decode_response(api, version, frame)
        if not future.done():
            future.set_result(response)

    def close(self) -> None:
        """Close the connection; requests that wait for a response fail with `NoResponse`."""
        socket, self._socket = self._socket, None
        if socket is not None:
            self._net.on_readable(socket, None)
            self._net.on_writable(socket, None)
            with contextlib.suppress(OSError):
                socket.close()
        self._received.clear()
        self._unsent.clear()
        waiting, self._waiting = self._waiting, {}
        for _, _, future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the connection is gone"))


class Connections:
    """Connections of `process` to brokers, each opened when it is first needed.

    Args:
        brokers: the address of each broker by node id; more may come.
        on_late: as of `ClientConnection`.
    """

    def __init__(
        self,
        net: Network,
        process: Process,
        brokers: Mapping[int, Address],
        on_late: Callable[[str, float], None] = lambda request, asked_at: None,
    ) -> None:
        self._net = net
        self._process = process
        self._brokers = brokers
        self._on_late = on_late
        self._open: dict[int, ClientConnection] = {}

    def to(self, node_id: int) -> ClientConnection:
        """Return the connection to a broker. Raises `KeyError` for an unknown one."""
        if node_id not in self._open:
            address = self._brokers[node_id]
            self._open[node_id] = ClientConnection(self._net, self._process, address, self._on_late)
        return self._open[node_id]

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
