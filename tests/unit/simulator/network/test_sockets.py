"""Simulated sockets keep the rules of TCP: windows, resets, and the end of a stream."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from simulator.engine.loop import SimulatedLoop
from simulator.engine.process import Process
from simulator.network.network import Network
from simulator.network.sockets import WINDOW, SimulatedNet, SimulatedSocket

SERVER = ("server", 9092)
Scenario = Callable[[SimulatedSocket, SimulatedSocket], Coroutine[Any, Any, None]]


def connected(scenario: Scenario) -> None:
    """Run a scenario with both ends of a connection."""
    loop = SimulatedLoop(random.Random(1))
    network = Network(loop, random.Random(1), lambda *event: None, Counter())
    net = SimulatedNet(network, Process("server"))
    listener = net.listen(*SERVER, backlog=1)

    async def main() -> None:
        near = await network.connect(Process("client"), SERVER)
        await scenario(near, listener.accept())

    loop.run_until_complete(main())
    loop.close()


def received(sock: SimulatedSocket, size: int = WINDOW) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: sock.recv_into(buffer)])


def test_a_sender_waits_for_its_window() -> None:
    async def scenario(near: SimulatedSocket, far: SimulatedSocket) -> None:
        assert near.send(bytes(WINDOW + 1)) == WINDOW
        with pytest.raises(BlockingIOError):
            near.send(b"x")
        await asyncio.sleep(1)
        assert len(received(far, 100)) == 100
        assert near.send(bytes(WINDOW)) == 100

    connected(scenario)


def test_the_end_of_the_stream_follows_all_bytes() -> None:
    async def scenario(near: SimulatedSocket, far: SimulatedSocket) -> None:
        near.send(b"last")
        near.close()
        with pytest.raises(BlockingIOError):
            received(far)
        await asyncio.sleep(1)
        assert received(far) == b"last"
        assert received(far) == b""

    connected(scenario)


def test_a_close_with_unread_bytes_is_a_reset() -> None:
    async def scenario(near: SimulatedSocket, far: SimulatedSocket) -> None:
        far.send(b"unread")
        await asyncio.sleep(1)
        near.close()
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            received(far)

    connected(scenario)


def test_a_ready_socket_calls_its_owner_until_it_has_read_all() -> None:
    async def scenario(near: SimulatedSocket, far: SimulatedSocket) -> None:
        seen = bytearray()
        far.reader = lambda: seen.extend(received(far, 2))
        near.send(b"abcdef")
        await asyncio.sleep(1)
        assert seen == b"abcdef"

    connected(scenario)


def test_a_dead_process_cannot_use_its_socket() -> None:
    async def scenario(near: SimulatedSocket, far: SimulatedSocket) -> None:
        near.process.kill()
        with pytest.raises(OSError, match="Bad file descriptor"):
            near.send(b"x")

    connected(scenario)
