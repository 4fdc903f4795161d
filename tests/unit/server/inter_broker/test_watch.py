"""What operators learn of the other brokers, over the simulated network.

Log lines about the advertised addresses of this broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from called_broker import ADDRESS, CALLED, CALLER, CalledBroker
from lakelog.base.endpoint import Endpoint
from lakelog.base.errors import ErrorCode
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerRecord, ClusterRecord
from lakelog.network_client import Identity
from lakelog.protocol.cluster import DescribeClusterRequest
from lakelog.server.inter_broker.peer import PeerSeams
from lakelog.server.inter_broker.reachable_brokers import PATIENCE_S
from lakelog.server.inter_broker.silence import LEASE_PERCENT
from lakelog.server.inter_broker.watch import PeerWatch, Reach, check_advertised
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from simulator.engine.process import Process
from simulator.engine.tasks import SimulatedTasks, StreamRandom
from simulator.network.network import Network
from simulator.network.sockets import SimulatedNet

OWN, OTHER = 1, 2
ALONE = MetadataImage().apply_all([ClusterRecord("cluster")], 1)


def registered(node_id: int, *endpoints: Endpoint) -> MetadataImage:
    """Return an image with one broker."""
    return ALONE.apply(BrokerRecord(node_id, CALLED.incarnation_id, 1, endpoints, None))


KNOWN = registered(OTHER, Endpoint("X", *ADDRESS))


class Watched:
    """A watch, and the broker that it calls."""

    def __init__(self, loop: SimulatedLoop, caplog: pytest.LogCaptureFixture) -> None:
        rng = random.Random(7)
        network = Network(loop, rng, lambda *event: None, Counter())
        self.broker = CalledBroker(network)
        self.process = Process("a")
        net: Any = SimulatedNet(network, self.process)
        tasks, clock = SimulatedTasks(loop, rng), SimulatedClock(loop)
        self.ended: list[Any] = []
        seams = PeerSeams(OWN, net, tasks, clock, StreamRandom(rng))
        self.watch = PeerWatch(CALLER, "X", seams, self.ended.append, tuple, 18.0)
        self._caplog = caplog

    @property
    def events(self) -> list[str]:
        return [record.__dict__["event"] for record in self._caplog.records]

    @property
    def reach(self) -> dict[Reach, int]:
        return {reach: count for reach, count in self.watch.counts().items() if count}


Run = Callable[[Callable[[Watched], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(caplog: pytest.LogCaptureFixture) -> Run:
    caplog.set_level(logging.INFO, "lakelog.server")

    def run(scenario: Callable[[Watched], Coroutine[Any, Any, None]]) -> None:
        with contextlib.closing(SimulatedLoop(random.Random(7))) as loop:
            watched = Watched(loop, caplog)
            loop.run_until_complete(scenario(watched))
            watched.watch.stop()
            loop.run_until_complete(asyncio.sleep(1.0))

    return run


def test_a_change_leaves_one_line_however_long_it_lasts(run: Run) -> None:
    async def scenario(watched: Watched) -> None:
        watched.watch.start(KNOWN)
        await asyncio.sleep(60.0)
        assert watched.events == ["peer_connected"]
        assert watched.reach == {Reach.CONNECTED: 1}
        watched.broker.stop_listening()
        await asyncio.sleep(60.0)
        assert watched.events[1:] == ["peer_unreachable"]
        assert watched.reach == {Reach.UNREACHABLE: 1}
        watched.broker.listen()
        await asyncio.sleep(10.0)
        assert watched.events[2:] == ["peer_connected"]

    run(scenario)


def test_a_process_that_closes_its_connection_and_refuses_others_has_ended(run: Run) -> None:
    async def scenario(watched: Watched) -> None:
        watched.watch.start(KNOWN)
        await asyncio.sleep(10.0)
        watched.broker.stop_listening()
        await asyncio.sleep(0.5)
        assert watched.ended == [CALLED]
        await asyncio.sleep(60.0)
        assert watched.ended == [CALLED], "it is reported once"
        watched.broker.listen()
        await asyncio.sleep(10.0)
        watched.broker.stop_listening()
        await asyncio.sleep(10.0)
        assert watched.ended == [CALLED, CALLED], "it was connected again"

    run(scenario)


def test_a_process_is_a_contact_once_it_has_answered(run: Run) -> None:
    async def scenario(watched: Watched) -> None:
        reachable_brokers = watched.watch.reachable_brokers
        watched.broker.stop_listening()
        watched.watch.start(KNOWN)
        began = asyncio.get_running_loop().time()
        await reachable_brokers.wait(lambda: KNOWN)
        assert asyncio.get_running_loop().time() - began < PATIENCE_S, "it was called once"
        assert reachable_brokers.lacking(KNOWN) == {OTHER}
        watched.broker.listen()
        await asyncio.sleep(10.0)
        assert not reachable_brokers.lacking(KNOWN)

    run(scenario)


def test_a_process_that_was_never_reached_has_not_ended(run: Run) -> None:
    async def scenario(watched: Watched) -> None:
        watched.broker.stop_listening()
        watched.watch.start(KNOWN)
        await asyncio.sleep(60.0)
        assert watched.ended == []

    run(scenario)


def test_another_process_at_the_address_is_refused(run: Run) -> None:
    async def scenario(watched: Watched) -> None:
        watched.broker.greeting_error = ErrorCode.REBOOTSTRAP_REQUIRED
        watched.watch.start(KNOWN)
        await asyncio.sleep(60.0)
        assert watched.events == ["peer_refused"]
        assert watched.reach == {Reach.REFUSED: 1}
        assert watched.broker.notes == []

    run(scenario)


def test_a_process_that_cannot_prove_its_registration_gets_no_request(run: Run) -> None:
    async def scenario(watched: Watched) -> None:
        watched.broker.own = CALLED._replace(incarnation_id=bytes(16))
        watched.watch.start(KNOWN)
        await asyncio.sleep(60.0)
        assert watched.events == ["peer_unreachable"]
        assert watched.broker.notes == []

    run(scenario)


def test_a_broker_is_called_from_the_start_of_the_watch_to_its_end(run: Run) -> None:
    async def scenario(watched: Watched) -> None:
        watched.watch.follow(KNOWN)
        await asyncio.sleep(10.0)
        assert watched.broker.sockets == []
        watched.watch.start(KNOWN)
        await asyncio.sleep(10.0)
        assert len(watched.broker.sockets) == 1
        watched.watch.stop()
        await asyncio.sleep(1.0)
        asked = len(watched.broker.notes)
        assert watched.process.sockets == []
        await asyncio.sleep(60.0)
        assert len(watched.broker.notes) == asked

    run(scenario)


def test_a_broker_that_leaves_is_neither_called_nor_counted(run: Run) -> None:
    async def scenario(watched: Watched) -> None:
        watched.watch.start(ALONE)
        watched.watch.follow(KNOWN)
        await asyncio.sleep(10.0)
        assert watched.reach == {Reach.CONNECTED: 1}
        watched.watch.follow(ALONE)
        await asyncio.sleep(10.0)
        assert watched.reach == {}
        assert watched.process.sockets == []

    run(scenario)


def test_this_broker_is_called_once_at_its_advertised_addresses(run: Run) -> None:
    async def scenario(watched: Watched) -> None:
        endpoints = Endpoint("X", *ADDRESS), Endpoint("Y", "b", 1)
        watched.watch.start(registered(OWN, *endpoints))
        await asyncio.sleep(60.0)
        assert watched.events == ["advertised_address_unreachable"], "only of Y"
        assert len(watched.broker.notes) == 1
        assert watched.reach == {}
        assert watched.process.sockets == []

    run(scenario)


def test_followers_fetch_over_connections_of_their_own(run: Run) -> None:
    async def scenario(watched: Watched) -> None:
        watched.watch.start(KNOWN)
        await asyncio.sleep(10.0)
        leader = watched.watch.leaders.get(OTHER)
        assert leader is not None, "a leader answers no fetch behind a request that waits for one"
        await leader.request(DescribeClusterRequest(), timeout_s=1.0)
        assert len(watched.broker.sockets) == 2
        watched.watch.follow(ALONE)
        await asyncio.sleep(1.0)
        assert watched.watch.leaders.get(OTHER) is None
        assert watched.process.sockets == []

    run(scenario)


def test_calls_continue_after_a_bug(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(watched: Watched) -> None:
        def fail(node_id: int) -> None:
            raise RuntimeError("planted")

        with monkeypatch.context() as planted:
            planted.setattr(watched.watch.failed_brokers, "resolved", fail)
            watched.watch.start(KNOWN)
            await asyncio.sleep(20.0)
        await asyncio.sleep(20.0)
        assert not watched.watch.silence.unanswering()
        assert watched.events == ["peer_connected", "task_failed"]
        asked = len(watched.broker.notes)
        await asyncio.sleep(20.0)
        assert len(watched.broker.notes) > asked
        with monkeypatch.context() as planted:
            planted.setattr(watched.watch.failed_brokers, "resolved", fail)
            await asyncio.sleep(20.0)
        assert watched.events.count("task_failed") == 2, "it had succeeded in between"

    run(scenario)


def test_silence_counts_after_a_bug(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(watched: Watched) -> None:
        def fail() -> frozenset[int]:
            raise RuntimeError("planted")

        with monkeypatch.context() as planted:
            planted.setattr(watched.watch.silence, "unseen", fail)
            watched.watch.start(KNOWN)
            await asyncio.sleep(20.0)
        assert watched.events.count("task_failed") == 1
        ticks: list[float] = []
        monkeypatch.setattr(watched.watch.silence, "tick", ticks.append)
        await asyncio.sleep(20.0)
        assert ticks

    run(scenario)


def test_a_denied_lease_has_ended_before_the_next_call_says_so(run: Run) -> None:
    async def scenario(watched: Watched) -> None:
        denials: list[int] = []
        watched.watch.watch_denial(lambda: denials.append(len(watched.broker.calls)))
        watched.watch.start(KNOWN)
        await asyncio.sleep(10.0)
        silence = watched.watch.silence
        assert not denials
        assert silence.contact_s(OTHER) > 0.0
        watched.broker.denied_lease = 5
        begun = len(watched.broker.calls)
        await asyncio.sleep(10.0)
        assert silence.contact_s(OTHER) == float("-inf")
        assert not silence.unanswering(), "it answers"
        ended = [each.ended_lease for each in watched.broker.calls[begun:]]
        assert ended == [-1] + [5] * (len(ended) - 1)
        assert denials == list(range(begun + 1, begun + 1 + len(ended)))
        watched.broker.denied_lease = -1
        await asyncio.sleep(10.0)
        assert silence.contact_s(OTHER) > 0.0
        assert watched.broker.calls[-1].ended_lease == -1
        assert watched.broker.calls[0].missed_brokers == [OTHER], "it has not answered yet"
        assert watched.broker.calls[-1].missed_brokers == []
        assert watched.broker.calls[-1].lease_percent == LEASE_PERCENT

    run(scenario)


def test_a_connection_that_ends_is_a_loss(run: Run) -> None:
    async def scenario(watched: Watched) -> None:
        watched.watch.start(KNOWN)
        watched.watch.follow(KNOWN)
        await asyncio.sleep(10.0)
        lost, failed_brokers = list[int](), cast("Any", watched.watch.failed_brokers)
        failed_brokers.add = lost.append
        watched.broker.stop_listening()
        await asyncio.sleep(0.5)
        assert lost == [OTHER]

    run(scenario)


HERE, NOWHERE = Endpoint("X", *ADDRESS), Endpoint("Y", "b", 1)


@pytest.mark.parametrize(
    ("greeting_error", "endpoint", "events"),
    [
        (0, HERE, []),
        (0, NOWHERE, [("advertised_address_unreachable", "INFO")]),
        (ErrorCode.REBOOTSTRAP_REQUIRED, HERE, [("advertised_address_wrong", "WARNING")]),
    ],
)
def test_only_an_address_without_this_broker_leaves_a_line(
    greeting_error: int,
    endpoint: Endpoint,
    events: list[tuple[str, str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "lakelog.server.inter_broker")
    with contextlib.closing(SimulatedLoop(random.Random(7))) as loop:
        rng, process = random.Random(7), Process("a")
        network = Network(loop, rng, lambda *event: None, Counter())
        CalledBroker(network).greeting_error = greeting_error
        net: Any = SimulatedNet(network, process)
        tasks, clock = SimulatedTasks(loop, rng), SimulatedClock(loop)
        seams = PeerSeams(1, net, tasks, clock, StreamRandom(rng))
        loop.run_until_complete(check_advertised(Identity("cluster", 1), [endpoint], seams))
    found = [(record.__dict__["event"], record.levelname) for record in caplog.records]
    assert found == events
    assert process.sockets == []
