"""The socket and the timers of one peer, over the simulated network."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from called_broker import ADDRESS, CalledBroker
from lakelog.base.endpoint import Endpoint
from lakelog.network_client import Identity
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from lakelog.server.inter_broker.exchange import (
    PeerDisconnectedError,
    PeerLimits,
    PeerTimedOutError,
    PeerUnreachableError,
)
from lakelog.server.inter_broker.peer import Peer, PeerSeams
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from simulator.engine.process import Process
from simulator.engine.tasks import SimulatedTasks, StreamRandom
from simulator.network.network import Network
from simulator.network.sockets import SimulatedNet

LIMITS = PeerLimits(connect_timeout_s=2.0)


class Line:
    """A peer, the broker that it calls, and the network between them."""

    def __init__(self, loop: SimulatedLoop) -> None:
        rng = random.Random(7)
        self.network = Network(loop, rng, lambda *event: None, Counter())
        self.broker = CalledBroker(self.network)
        self.process = Process("a")
        net: Any = SimulatedNet(self.network, self.process)
        seams = PeerSeams(
            1, net, SimulatedTasks(loop, rng), SimulatedClock(loop), StreamRandom(rng)
        )
        self.peer = Peer(Identity("cluster", 2), Endpoint("X", *ADDRESS), seams, LIMITS)

    async def ask(self, *topics: str, timeout_s: float = 10.0) -> str:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics])
        response = await self.peer.request(request, timeout_s=timeout_s)
        assert isinstance(response, MetadataResponse)
        return response.cluster_id or ""


def over_a_network(scenario: Callable[[Line], Coroutine[Any, Any, None]]) -> None:
    with contextlib.closing(SimulatedLoop(random.Random(7))) as loop:
        loop.run_until_complete(scenario(Line(loop)))


def test_many_requests_share_a_connection_that_moves_few_bytes_at_once() -> None:
    async def scenario(line: Line) -> None:
        line.network.partial_chance, line.network.delay_s = 0.9, (0.0, 0.05)
        names = [f"topic-{number}" for number in range(100)]
        assert await asyncio.gather(*map(line.ask, names)) == names
        assert line.broker.notes == names
        assert len(line.broker.sockets) == 1

    over_a_network(scenario)


def test_requests_and_responses_that_together_exceed_all_buffers() -> None:
    async def scenario(line: Line) -> None:
        line.broker.padding = "x" * 16_000
        name = "y" * 16_000
        expected = [line.broker.padding + name] * 20
        assert await asyncio.gather(*(line.ask(name) for _ in expected)) == expected

    over_a_network(scenario)


def test_a_request_larger_than_the_socket_takes() -> None:
    async def scenario(line: Line) -> None:
        names = ["z" * 16_000] * 20
        assert (await line.ask(*names)).endswith("z")

    over_a_network(scenario)


def test_a_connection_that_is_lost_while_it_is_full_blocks_no_later_one() -> None:
    async def scenario(line: Line) -> None:
        names = ["z" * 16_000] * 20
        await line.ask("first")
        line.broker.is_reading = False
        with pytest.raises(PeerTimedOutError):
            await line.ask(*names, timeout_s=1.0)
        line.broker.is_reading = True
        assert (await line.ask(*names)).endswith("z")

    over_a_network(scenario)


def test_a_later_request_with_a_shorter_limit_times_out_first() -> None:
    async def scenario(line: Line) -> None:
        line.broker.is_silent = True
        patient = asyncio.ensure_future(line.ask("patient", timeout_s=60.0))
        await asyncio.sleep(1.0)
        with pytest.raises(PeerTimedOutError):
            await line.ask("impatient", timeout_s=1.0)
        assert asyncio.get_running_loop().time() < 3.0
        with pytest.raises(PeerDisconnectedError):
            await patient

    over_a_network(scenario)


def test_a_request_without_a_response_times_out_and_the_next_has_a_new_connection() -> None:
    async def scenario(line: Line) -> None:
        line.broker.is_silent = True
        with pytest.raises(PeerTimedOutError):
            await line.ask("first", timeout_s=1.0)
        line.broker.is_silent = False
        assert await line.ask("second") == "second"
        assert len(line.broker.sockets) == 2

    over_a_network(scenario)


def test_a_cancelled_request_that_waits_is_never_sent() -> None:
    async def scenario(line: Line) -> None:
        cancelled = asyncio.ensure_future(line.ask("cancelled"))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert await line.ask("other") == "other"
        assert line.broker.notes == ["other"]

    over_a_network(scenario)


def test_the_response_to_a_cancelled_request_is_not_taken_for_another() -> None:
    async def scenario(line: Line) -> None:
        await line.ask("zero")
        line.network.delay_s = (0.5, 0.5)
        cancelled = asyncio.ensure_future(line.ask("cancelled"))
        await asyncio.sleep(0.1)
        cancelled.cancel()
        assert await line.ask("other") == "other"
        assert line.broker.notes == ["zero", "cancelled", "other"]

    over_a_network(scenario)


def test_an_idle_connection_that_the_broker_closes_is_replaced_by_the_next_request() -> None:
    async def scenario(line: Line) -> None:
        await line.ask("first")
        line.broker.sockets[0].close()
        await asyncio.sleep(1.0)
        assert not line.peer.is_open
        assert await line.ask("second") == "second"

    over_a_network(scenario)


def test_an_attempt_to_connect_that_hangs_ends() -> None:
    async def scenario(line: Line) -> None:
        line.network.cut("a", "b")
        with pytest.raises(PeerUnreachableError, match="no connection in time"):
            await line.ask("first")
        assert 2.0 <= asyncio.get_running_loop().time() < 3.0
        line.network.heal()
        assert await line.ask("second") == "second"

    over_a_network(scenario)


def test_closing_ends_connection_and_requests() -> None:
    async def scenario(line: Line) -> None:
        line.broker.is_silent = True
        sent = asyncio.ensure_future(line.ask("sent"))
        await asyncio.sleep(1.0)
        line.peer.close()
        line.peer.close()
        with pytest.raises(PeerDisconnectedError):
            await sent
        with pytest.raises(PeerUnreachableError):
            await line.ask("late")
        assert line.process.sockets == []

    over_a_network(scenario)


def test_closing_ends_an_attempt_to_connect() -> None:
    async def scenario(line: Line) -> None:
        line.network.delay_s = (1.0, 1.0)
        call = asyncio.ensure_future(line.ask("first"))
        await asyncio.sleep(0.5)
        line.peer.close()
        with pytest.raises(PeerUnreachableError):
            await call
        await asyncio.sleep(5.0)
        assert line.broker.sockets == []

    over_a_network(scenario)
