"""Connections that are slow, partial, reset and cut off, and never lose or reorder bytes."""

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


class Wires:
    """A server that keeps the received bytes, and a client."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self.network = Network(loop, random.Random(seed), lambda *event: None, Counter())
        self.server, self.client = Process("server"), Process("client")
        self._net = SimulatedNet(self.network, self.server)
        self._listener = self._net.listen(*SERVER, backlog=1)
        self._net.on_acceptable(self._listener, self._accept)
        self.accepted: list[SimulatedSocket] = []
        self.received = bytearray()
        self.ended: Exception | str | None = None

    def _accept(self) -> None:
        sock = self._listener.accept()
        self.accepted.append(sock)
        self._net.on_readable(sock, lambda: self._read(sock))

    def _read(self, sock: SimulatedSocket) -> None:
        buffer = bytearray(100)
        try:
            count = sock.recv_into(buffer)
        except OSError as error:
            self.ended = error
            self._net.on_readable(sock, None)
            return
        self.received += buffer[:count]
        if not count:
            self.ended = "end"
            self._net.on_readable(sock, None)

    async def connect(self) -> SimulatedSocket:
        return await self.network.connect(self.client, SERVER)

    async def send_all(self, sock: SimulatedSocket, data: bytes) -> None:
        while data:
            try:
                data = data[sock.send(data) :]
            except BlockingIOError:
                await asyncio.sleep(0.01)


def in_network(seed: int, scenario: Callable[[Wires], Coroutine[Any, Any, None]]) -> None:
    loop = SimulatedLoop(random.Random(seed))
    wires = Wires(loop, seed)
    loop.run_until_complete(scenario(wires))
    loop.close()


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_whole_and_in_order_however_slowly(seed: int) -> None:
    data = random.Random(seed).randbytes(3 * WINDOW)

    async def scenario(wires: Wires) -> None:
        net = wires.network
        net.delay_s, net.stall_chance, net.partial_chance = (0.0, 0.3), 0.2, 0.8
        sock = await wires.connect()
        await wires.send_all(sock, data)
        sock.close()
        await asyncio.sleep(1000)
        assert wires.received == data
        assert wires.ended == "end"
        assert net.faults["partial"] and net.faults["stall"]

    in_network(seed, scenario)


def test_bytes_held_back_by_a_cut_arrive_when_it_is_healed() -> None:
    async def scenario(wires: Wires) -> None:
        sock = await wires.connect()
        wires.network.cut("client", "server")
        await wires.send_all(sock, b"one")
        await asyncio.sleep(5)
        await wires.send_all(sock, b"two")
        await asyncio.sleep(5)
        assert not wires.received
        wires.network.heal()
        await asyncio.sleep(1)
        assert wires.received == b"onetwo"

    in_network(1, scenario)


def test_bytes_on_a_connection_that_is_given_up_may_arrive_later() -> None:
    async def scenario(wires: Wires) -> None:
        first = await wires.connect()
        await wires.send_all(first, b"one")
        await asyncio.sleep(1)
        wires.network.delays.append(lambda source, portion: portion == b"two")
        await wires.send_all(first, b"two")
        await wires.send_all(first, b"three")
        await asyncio.sleep(1)
        wires.network.give_up(first)
        with pytest.raises(ConnectionResetError):
            first.send(b"four")
        second = await wires.connect()
        await wires.send_all(second, b" again ")
        await asyncio.sleep(5)
        assert wires.received == b"one again "
        wires.network.release(first)
        await asyncio.sleep(1)
        assert wires.received == b"one again twothree"

    in_network(1, scenario)


def test_a_killed_process_resets_its_connections_and_a_host_without_power_does_not() -> None:
    async def scenario(wires: Wires) -> None:
        first, second = await wires.connect(), await wires.connect()
        await asyncio.sleep(1)
        wires.client.kill()
        wires.network.disconnect(wires.client, silently=True)
        await asyncio.sleep(5)
        assert wires.ended is None
        assert first.closed and second.closed
        wires.accepted[0].send(b"is anybody there?")
        await asyncio.sleep(1)
        assert isinstance(wires.ended, ConnectionResetError)

    in_network(1, scenario)


def test_a_connection_without_a_listener_is_refused() -> None:
    async def scenario(wires: Wires) -> None:
        with pytest.raises(ConnectionRefusedError):
            await wires.network.connect(wires.client, ("server", 1))
        wires.server.kill()
        with pytest.raises(ConnectionRefusedError):
            await wires.connect()

    in_network(1, scenario)


def test_a_filter_breaks_and_refuses_the_connections_of_one_side() -> None:
    async def scenario(wires: Wires) -> None:
        sock = await wires.connect()
        wires.network.filter("server", "client")
        sock.send(b"x")
        await asyncio.sleep(0.1)
        assert wires.received == b"x", "the other side opened it"
        wires.network.filter("client", "server")
        await asyncio.sleep(0.1)
        assert isinstance(wires.ended, OSError)
        with pytest.raises(OSError, match="filtered"):
            await wires.connect()
        wires.network.heal()
        await wires.connect()

    in_network(1, scenario)
