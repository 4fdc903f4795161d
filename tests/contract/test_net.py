"""What every network promises to the broker, whichever it is (`lakelog.runtime.api.Net`)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lakelog.runtime.aio import AsyncioNet
from lakelog.runtime.api import Listener, Net, Socket
from simulator.engine.loop import SimulatedLoop
from simulator.engine.process import Process
from simulator.network.network import Network
from simulator.network.sockets import SimulatedNet

LONG_S = 60.0
"""Ends a broken run only."""


class Place(ABC):
    """Two hosts: `server` listens on `host`, `client` connects."""

    server: Net
    client: Net
    host: str

    @abstractmethod
    async def unused_port(self) -> int:
        """Return a port of the server where nothing listens."""

    @abstractmethod
    async def silent_port(self) -> int:
        """Return a port of the server that answers no attempt to connect."""


class RealPlace(Place):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.server = self.client = AsyncioNet(loop)
        self.host = "127.0.0.1"
        self._kept = contextlib.ExitStack()

    async def unused_port(self) -> int:
        bound = self._kept.enter_context(socket.socket())
        bound.bind((self.host, 0))
        return int(bound.getsockname()[1])

    async def silent_port(self) -> int:
        """The kernel drops attempts to connect to a full queue of connections."""
        listener = self._kept.enter_context(socket.socket())
        listener.bind((self.host, 0))
        listener.listen(0)
        port = int(listener.getsockname()[1])
        with contextlib.suppress(TimeoutError):
            while True:
                sock = await self.client.connect(self.host, port, timeout_s=0.2)
                self._kept.callback(sock.close)
        return port

    def close(self) -> None:
        self._kept.close()


class SimulatedPlace(Place):
    def __init__(self, loop: SimulatedLoop) -> None:
        self._network = Network(loop, random.Random(7), lambda *event: None, Counter())
        self.server, self.client = self._net("server"), self._net("client")
        self.host = "server"

    def _net(self, host: str) -> Net:
        net: Any = SimulatedNet(self._network, Process(host))
        result: Net = net
        return result

    async def unused_port(self) -> int:
        return 9092

    async def silent_port(self) -> int:
        self._network.cut("client", "server")
        return 9092


Scenario = Callable[[Place], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]


def _in_reality(scenario: Scenario) -> None:
    with asyncio.Runner() as runner:
        network = RealPlace(runner.get_loop())
        with contextlib.closing(network):
            runner.run(scenario(network))


def _in_simulation(scenario: Scenario) -> None:
    loop = SimulatedLoop(random.Random(7))
    with contextlib.closing(loop):
        loop.run_until_complete(scenario(SimulatedPlace(loop)))


@pytest.fixture(params=[_in_reality, _in_simulation], ids=["real", "simulated"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


async def readable(net: Net, sock: Socket) -> None:
    """Wait until the socket may be received from."""
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    net.on_readable(sock, lambda: None if ready.done() else ready.set_result(None))
    async with asyncio.timeout(LONG_S):
        await ready
    net.on_readable(sock, None)


async def writable(net: Net, sock: Socket) -> None:
    """Wait until the socket may be sent to."""
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    net.on_writable(sock, lambda: None if ready.done() else ready.set_result(None))
    async with asyncio.timeout(LONG_S):
        await ready
    net.on_writable(sock, None)


async def received(net: Net, sock: Socket, size: int) -> bytes:
    """Return the next `size` bytes, or fewer at the end of the stream."""
    data, buffer = b"", bytearray(size)
    while len(data) < size:
        await readable(net, sock)
        with contextlib.suppress(BlockingIOError):
            count = sock.recv_into(buffer, size - len(data))
            if not count:
                return data
            data += buffer[:count]
    return data


async def send_all(net: Net, sock: Socket, data: bytes) -> None:
    while data:
        try:
            data = data[sock.send(data) :]
        except BlockingIOError:
            await writable(net, sock)


async def accepted(net: Net, listener: Listener) -> Socket:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    net.on_acceptable(listener, lambda: None if ready.done() else ready.set_result(None))
    async with asyncio.timeout(LONG_S):
        await ready
    net.on_acceptable(listener, None)
    return listener.accept()


async def connected(network: Place, listener: Listener) -> tuple[Socket, Socket]:
    """Return the client's and the server's end of a new connection."""
    near = await network.client.connect(network.host, listener.address[1], timeout_s=LONG_S)
    return near, await accepted(network.server, listener)


def test_a_connection_carries_bytes_both_ways(run: Run) -> None:
    async def scenario(network: Place) -> None:
        listener = network.server.listen(network.host, 0, backlog=5)
        near, far = await connected(network, listener)
        assert near.getpeername()[:2] == tuple(listener.address)
        assert near.getsockname()[:2] == far.getpeername()[:2]
        await send_all(network.client, near, b"request")
        assert await received(network.server, far, 7) == b"request"
        await send_all(network.server, far, b"response")
        assert await received(network.client, near, 8) == b"response"
        near.close()
        far.close()
        listener.close()

    run(scenario)


def test_a_connected_socket_never_blocks(run: Run) -> None:
    async def scenario(network: Place) -> None:
        listener = network.server.listen(network.host, 0, backlog=5)
        near, far = await connected(network, listener)
        with pytest.raises(BlockingIOError):
            near.recv_into(bytearray(1))
        with pytest.raises(BlockingIOError):
            for _ in range(1000):
                near.send(bytes(1 << 16))
        near.close()
        far.close()
        listener.close()

    run(scenario)


def test_a_full_socket_is_writable_again_when_the_peer_has_read(run: Run) -> None:
    data = random.Random(7).randbytes(3 << 20)

    async def scenario(network: Place) -> None:
        listener = network.server.listen(network.host, 0, backlog=5)
        near, far = await connected(network, listener)
        sending = asyncio.ensure_future(send_all(network.client, near, data))
        assert await received(network.server, far, len(data)) == data
        await sending
        near.close()
        far.close()
        listener.close()

    run(scenario)


def test_the_end_of_the_peers_stream_is_received(run: Run) -> None:
    async def scenario(network: Place) -> None:
        listener = network.server.listen(network.host, 0, backlog=5)
        near, far = await connected(network, listener)
        far.close()
        assert await received(network.client, near, 1) == b""
        near.close()
        listener.close()

    run(scenario)


def test_a_port_without_a_listener_refuses(run: Run) -> None:
    async def scenario(network: Place) -> None:
        with pytest.raises(ConnectionRefusedError):
            port = await network.unused_port()
            await network.client.connect(network.host, port, timeout_s=LONG_S)

    run(scenario)


def test_an_attempt_without_an_answer_times_out(run: Run) -> None:
    async def scenario(network: Place) -> None:
        port = await network.silent_port()
        async with asyncio.timeout(LONG_S):
            with pytest.raises(TimeoutError):
                await network.client.connect(network.host, port, timeout_s=0.1)

    run(scenario)


def test_a_cancelled_attempt_leaves_no_connection(run: Run) -> None:
    async def scenario(network: Place) -> None:
        port = await network.silent_port()
        attempt = asyncio.ensure_future(
            network.client.connect(network.host, port, timeout_s=LONG_S)
        )
        await asyncio.sleep(0)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt

    run(scenario)
