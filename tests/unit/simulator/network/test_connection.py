"""A simulated client's connection: lost responses, and responses that are late."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lakelog.protocol.api import api_for
from lakelog.protocol.groups import HeartbeatRequest, HeartbeatResponse
from lakelog.wire.framing import encode_response
from simulator.engine.loop import SimulatedLoop
from simulator.engine.process import Process
from simulator.network.connection import LATE_S, ClientConnection, NoResponse
from simulator.network.network import Network
from simulator.network.sockets import SimulatedNet, SimulatedSocket

SERVER = ("server", 9092)
REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Exchange:
    """A client, and a server that answers each request `delay_s` after it arrives."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.network = Network(loop, random.Random(1), lambda *event: None, Counter())
        self.late: list[str] = []
        self.delay_s: float | None = 0.0
        self._server = Process("server")
        self._net = SimulatedNet(self.network, self._server)
        self._listener = self._net.listen(*SERVER, backlog=1)
        self._net.on_acceptable(self._listener, self._accept)
        self.accepted: list[SimulatedSocket] = []
        self.connection = ClientConnection(
            self.network, Process("client"), SERVER, lambda name, at: self.late.append(name)
        )

    def _accept(self) -> None:
        sock = self._listener.accept()
        self.accepted.append(sock)
        self._net.on_readable(sock, lambda: self._read(sock))

    def _read(self, sock: SimulatedSocket) -> None:
        buffer = bytearray(1000)
        try:
            count = sock.recv_into(buffer)
        except OSError:
            return
        if count and self.delay_s is not None:
            correlation_id = int.from_bytes(buffer[8:12], "big")
            self.loop.call_later(self.delay_s, self._answer, sock, correlation_id)

    def _answer(self, sock: SimulatedSocket, correlation_id: int) -> None:
        response = HeartbeatResponse(error_code=27)
        parts = encode_response(api_for(HeartbeatRequest), 3, correlation_id, response)
        sock.send(b"".join(bytes(part) for part in parts))


def exchange(scenario: Callable[[Exchange], Coroutine[Any, Any, None]]) -> None:
    loop = SimulatedLoop(random.Random(1))
    loop.run_until_complete(scenario(Exchange(loop)))
    loop.close()


def test_a_response() -> None:
    async def scenario(made: Exchange) -> None:
        assert (await made.connection.call(REQUEST, 3)).error_code == 27
        assert made.late == []

    exchange(scenario)


def test_a_response_that_comes_late_is_reported() -> None:
    async def scenario(made: Exchange) -> None:
        made.delay_s = LATE_S + 0.1
        assert (await made.connection.call(REQUEST, 3)).error_code == 27
        assert made.late == ["HeartbeatRequest"]

    exchange(scenario)


def test_a_request_without_a_response_is_reported_and_ends_the_connection() -> None:
    async def scenario(made: Exchange) -> None:
        made.delay_s = None
        with pytest.raises(NoResponse):
            await made.connection.call(REQUEST, 3)
        assert made.late == ["HeartbeatRequest"]
        made.delay_s = 0.0
        await made.connection.call(REQUEST, 3)
        assert len(made.accepted) == 2

    exchange(scenario)


def test_a_client_with_a_short_timeout_blames_no_broker() -> None:
    async def scenario(made: Exchange) -> None:
        made.delay_s = None
        with pytest.raises(NoResponse):
            await made.connection.call(REQUEST, 3, 0.003)
        assert made.late == []

    exchange(scenario)


def test_a_reset_fails_all_requests_under_way() -> None:
    async def scenario(made: Exchange) -> None:
        made.delay_s = None
        calls = [asyncio.ensure_future(made.connection.call(REQUEST, 3)) for _ in range(3)]
        await asyncio.sleep(1)
        made.network.reset(made.accepted[0])
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [NoResponse] * 3
        assert made.late == []

    exchange(scenario)
