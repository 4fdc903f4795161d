"""Requests of a broker to a controller that it reaches directly, through others, or not at all."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest

from called_broker import ADDRESS, CALLED, CALLER, CalledBroker
from lakelog.base.endpoint import Endpoint
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerFenced, BrokerRecord, ClusterRecord
from lakelog.metadata.store.api import ControllerTerm
from lakelog.protocol.brokers import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
)
from lakelog.protocol.topics import CreateTopicsRequest, CreateTopicsResponse
from lakelog.server.authentication import ANONYMOUS, Principal, Process, broker_principal
from lakelog.server.controller.relays import DIRECT, Relays, may_be_done
from lakelog.server.inter_broker.exchange import (
    PeerBusyError,
    PeerDisconnectedError,
    PeerError,
    PeerTimedOutError,
    PeerUnreachableError,
)
from lakelog.server.inter_broker.peer import PeerSeams
from lakelog.server.inter_broker.silence import LEADS_FOR, Silence
from lakelog.server.inter_broker.watch import PeerWatch
from memory_broker import InlineTasks, MemoryBroker
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from simulator.engine.process import Process as SimulatedProcess
from simulator.engine.tasks import SimulatedTasks, StreamRandom
from simulator.network.network import Network
from simulator.network.sockets import SimulatedNet

OWN, CONTROLLER, THIRD, FOURTH, FENCED = 1, 2, 3, 4, 5
SESSION_S = 9.0
Outcome = Exception | ErrorCode | None
"""An error of the connection, the error code of a response, or None for no response at all."""
UNSENT, UNKNOWN = PeerUnreachableError("no connection"), PeerDisconnectedError("lost")


class Metadata:
    """The metadata that `Relays` reads."""

    controller_id = CONTROLLER

    def __init__(self) -> None:
        brokers = [BrokerRecord(each, bytes([each]) * 16, 1, (), None) for each in range(1, 6)]
        self.image = MetadataImage().apply_all([*brokers, BrokerFenced(FENCED, 1)], 1)


class ScriptedPeer:
    """The connection to a broker, with one outcome."""

    def __init__(self, node_id: int, scene: Scene) -> None:
        self.node_id = node_id
        self._scene = scene

    async def request(
        self, message: AlterPartitionRequest, *, timeout_s: float
    ) -> AlterPartitionResponse:
        self._scene.asked.append((self.node_id, message.via_broker))
        outcome = self._scene.outcomes.get(self.node_id, ErrorCode.NONE)
        if outcome is None:
            await asyncio.sleep(timeout_s)
            raise PeerTimedOutError("no response in time")
        if isinstance(outcome, Exception):
            raise outcome
        return AlterPartitionResponse(error_code=outcome)


class Scene:
    """Broker 1 among others; `asked` has the callee and `via_broker` of each attempt."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop(None)
        self.metadata = Metadata()
        self.silence = Silence(SESSION_S, 0.25)
        self.silence.follow(
            [Process(each, bytes([each]) * 16) for each in (CONTROLLER, THIRD, FOURTH, FENCED)], 0.0
        )
        self.outcomes: dict[int, Outcome] = {}
        self.asked: list[tuple[int, int]] = []
        self.relays = Relays(
            OWN,
            cast("Any", self.metadata),
            self.peer,
            self.peer,
            self.silence,
            InlineTasks(self.loop),
        )

    def peer(self, node_id: int) -> Any:
        return ScriptedPeer(node_id, self)

    def pass_s(self, seconds: float, *answering: int) -> None:
        """Let brokers be silent, except for the answering ones."""
        for _ in range(round(seconds / 0.25)):
            self.silence.tick(0.25)
            for each in answering:
                self.silence.note_answer(Process(each, bytes([each]) * 16), 0.0)
        self.relays.note_silence()

    async def ask(self) -> AlterPartitionResponse:
        response = await self.relays.ask(CONTROLLER, AlterPartitionRequest(broker_id=OWN))
        assert isinstance(response, AlterPartitionResponse)
        return response

    def send_on(self) -> ErrorCode:
        request = AlterPartitionRequest(broker_id=FOURTH, via_broker=OWN)
        work = self.relays.send_on(request, AlterPartitionResponse)
        return ErrorCode(self.loop.run_until_complete(work).error_code)


@pytest.fixture
def scene() -> Iterator[Scene]:
    found = Scene()
    yield found
    found.loop.close()


@pytest.mark.parametrize(
    ("request_type", "limit_s"), [(AlterPartitionRequest, 2.0), (BrokerHeartbeatRequest, 10.0)]
)
def test_a_proposal_without_an_answer_is_given_up_soon(
    scene: Scene, request_type: type[AlterPartitionRequest], limit_s: float
) -> None:
    scene.outcomes = {CONTROLLER: None}
    with pytest.raises(PeerTimedOutError):
        scene.loop.run_until_complete(scene.relays.ask(CONTROLLER, request_type(broker_id=OWN)))
    assert scene.loop.time() == pytest.approx(limit_s, abs=0.1)
    assert scene.asked == [(CONTROLLER, DIRECT)], "its outcome is unknown"


def test_a_proposal_without_an_answer_ends_no_other_request(scene: Scene) -> None:
    rng = random.Random(7)
    network = Network(scene.loop, rng, lambda *event: None, Counter())
    controller = CalledBroker(network)
    net: Any = SimulatedNet(network, SimulatedProcess("a"))
    clock, tasks = SimulatedClock(scene.loop), SimulatedTasks(scene.loop, rng)
    seams = PeerSeams(OWN, net, tasks, clock, StreamRandom(rng))
    watch = PeerWatch(CALLER, "X", seams, tuple, tuple, SESSION_S)
    endpoint = Endpoint("X", *ADDRESS)
    watch.follow(
        MetadataImage().apply_all(
            [
                ClusterRecord("cluster"),
                BrokerRecord(CONTROLLER, CALLED.incarnation_id, 1, (endpoint,), None),
            ],
            1,
        )
    )
    metadata = cast("Any", scene.metadata)
    own, proposals = watch.own_requests.get, watch.proposals.get
    relays = Relays(OWN, metadata, own, proposals, scene.silence, tasks)

    async def ask() -> None:
        heartbeat = BrokerHeartbeatRequest(broker_id=OWN)
        beating = asyncio.ensure_future(relays.ask(CONTROLLER, heartbeat))
        await asyncio.sleep(1.0)
        with pytest.raises(PeerTimedOutError):
            await relays.ask(CONTROLLER, AlterPartitionRequest(broker_id=OWN))
        assert controller.notes == ["BrokerHeartbeatRequest", "AlterPartitionRequest"]
        assert not beating.done()
        with pytest.raises(PeerTimedOutError):
            await beating
        watch.stop()
        await asyncio.sleep(1.0)

    scene.loop.run_until_complete(ask())


def test_a_controller_that_answers_is_asked_directly(scene: Scene) -> None:
    scene.loop.run_until_complete(scene.ask())
    assert scene.asked == [(CONTROLLER, DIRECT)]


@pytest.mark.parametrize("failure", [UNSENT, PeerBusyError("many")])
def test_a_request_that_was_not_sent_travels_through_others(
    scene: Scene, failure: Exception
) -> None:
    scene.outcomes = {CONTROLLER: failure, THIRD: ErrorCode.NOT_CONTROLLER}
    response = scene.loop.run_until_complete(scene.ask())
    assert response.error_code == ErrorCode.NONE
    assert scene.asked == [(CONTROLLER, DIRECT), (THIRD, THIRD), (FOURTH, FOURTH)]


@pytest.mark.parametrize(
    ("outcomes", "asked"),
    [
        ({CONTROLLER: UNKNOWN}, [CONTROLLER]),
        ({CONTROLLER: UNSENT, THIRD: UNKNOWN}, [CONTROLLER, THIRD]),
    ],
)
def test_a_request_that_may_have_been_sent_is_not_sent_again(
    scene: Scene, outcomes: dict[int, Outcome], asked: list[int]
) -> None:
    scene.outcomes = outcomes
    with pytest.raises(PeerDisconnectedError):
        scene.loop.run_until_complete(scene.ask())
    assert [each for each, _ in scene.asked] == asked


def test_an_unknown_outcome_behind_another_broker_is_returned(scene: Scene) -> None:
    scene.outcomes = {CONTROLLER: UNSENT, THIRD: ErrorCode.REQUEST_TIMED_OUT}
    response = scene.loop.run_until_complete(scene.ask())
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert len(scene.asked) == 2


def test_without_any_way_the_failure_says_that_nothing_was_sent(scene: Scene) -> None:
    scene.outcomes = dict.fromkeys((CONTROLLER, THIRD, FOURTH), UNSENT)
    with pytest.raises(PeerUnreachableError):
        scene.loop.run_until_complete(scene.ask())


def test_a_controller_that_does_not_answer_is_the_last_way(scene: Scene) -> None:
    scene.pass_s(SESSION_S * LEADS_FOR + 0.25, FOURTH)
    assert scene.relays.are_needed
    scene.outcomes = {FOURTH: UNSENT}
    scene.loop.run_until_complete(scene.ask())
    assert scene.asked == [(FOURTH, FOURTH), (CONTROLLER, DIRECT)]


def test_a_heartbeat_is_not_sent_to_a_controller_that_does_not_answer(scene: Scene) -> None:
    scene.pass_s(SESSION_S * LEADS_FOR + 0.25, FOURTH)
    scene.outcomes = {FOURTH: UNSENT, CONTROLLER: None}
    asking = scene.relays.ask(CONTROLLER, AlterPartitionRequest(broker_id=OWN), through_others=True)
    with pytest.raises(PeerUnreachableError):
        scene.loop.run_until_complete(asking)
    assert scene.asked == [(FOURTH, FOURTH)]


def test_a_controller_of_an_older_version_takes_no_relayed_request(scene: Scene) -> None:
    scene.outcomes = {CONTROLLER: UNSENT, THIRD: ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    response = scene.loop.run_until_complete(scene.ask())
    assert response.error_code == ErrorCode.NONE
    assert [each for each, _ in scene.asked] == [CONTROLLER, THIRD, FOURTH]


def test_a_broker_sends_nothing_on_to_a_controller_that_does_not_answer_it(scene: Scene) -> None:
    """It would keep the request of the other broker until its limit, which could ask a third."""
    scene.pass_s(SESSION_S * LEADS_FOR + 0.25, FOURTH)
    scene.outcomes = {CONTROLLER: None}
    assert scene.send_on() == ErrorCode.NOT_CONTROLLER
    assert not scene.asked


def test_a_broker_sends_nothing_on_for_a_silent_broker(scene: Scene) -> None:
    """Its requests arrive, and responses do not: others do not reach it."""
    for each in (CONTROLLER, FOURTH):
        scene.silence.note_answer(Process(each, bytes([each]) * 16), 0.0)
    scene.pass_s(SESSION_S * LEADS_FOR, CONTROLLER)
    assert scene.send_on() == ErrorCode.NOT_CONTROLLER
    assert not scene.asked


def test_a_request_is_given_up_when_the_controller_stops_answering(scene: Scene) -> None:
    scene.outcomes = {CONTROLLER: None}

    async def ask() -> float:
        begun = scene.loop.time()
        asking = asyncio.ensure_future(scene.ask())
        await asyncio.sleep(1.0)
        scene.pass_s(SESSION_S * LEADS_FOR, THIRD)
        assert not asking.done()
        scene.pass_s(0.25, THIRD)
        with pytest.raises(PeerTimedOutError) as raised:
            await asking
        assert raised.value.is_outcome_unknown
        return scene.loop.time() - begun

    assert scene.loop.run_until_complete(ask()) == 1.0


@pytest.mark.parametrize("successor", [THIRD, OWN, -1])
def test_a_request_to_a_former_controller_is_given_up(scene: Scene, successor: int) -> None:
    scene.outcomes = {CONTROLLER: None}

    async def ask() -> float:
        begun = scene.loop.time()
        asking = asyncio.ensure_future(scene.ask())
        await asyncio.sleep(1.0)
        scene.relays.note_term()
        await asyncio.sleep(1.0)
        assert not asking.done(), "a new term of the same controller changes nothing"
        scene.metadata.controller_id = successor
        scene.relays.note_term()
        with pytest.raises(PeerTimedOutError) as raised:
            await asking
        assert raised.value.is_outcome_unknown
        return scene.loop.time() - begun

    assert scene.loop.run_until_complete(ask()) == 2.0


def test_a_request_to_a_broker_between_outlives_the_controller(scene: Scene) -> None:
    scene.outcomes = {CONTROLLER: UNSENT, THIRD: None}

    async def ask() -> None:
        asking = asyncio.ensure_future(scene.ask())
        await asyncio.sleep(1.0)
        scene.metadata.controller_id = FOURTH
        scene.relays.note_term()
        await asyncio.sleep(1.0)
        assert not asking.done()
        asking.cancel()

    scene.loop.run_until_complete(ask())


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.STALE_BROKER_EPOCH),
        (UNSENT, ErrorCode.NOT_CONTROLLER),
        (UNKNOWN, ErrorCode.REQUEST_TIMED_OUT),
        (None, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_the_broker_between_says_whether_a_request_may_have_arrived(
    scene: Scene, outcome: Outcome, code: ErrorCode
) -> None:
    scene.outcomes = {CONTROLLER: outcome}
    assert scene.send_on() is code
    assert scene.asked == [(CONTROLLER, OWN)], "no other broker sends it on"


def test_a_request_is_sent_on_once(scene: Scene) -> None:
    def has_to_send_on(via: int, controller_id: int = CONTROLLER) -> bool:
        scene.metadata.controller_id = controller_id
        request = AlterPartitionRequest(broker_id=FOURTH, via_broker=via)
        return scene.relays.has_to_send_on(request)

    assert has_to_send_on(OWN)
    assert not has_to_send_on(DIRECT)
    assert not has_to_send_on(THIRD)
    assert not has_to_send_on(OWN, OWN)


@pytest.mark.parametrize(
    ("sender", "via", "may_send"),
    [
        (broker_principal(FOURTH), DIRECT, True),
        (broker_principal(FOURTH), OWN, True),
        (broker_principal(THIRD), THIRD, True),
        (broker_principal(THIRD), DIRECT, False),
        (broker_principal(THIRD), OWN, False),
        (broker_principal(FOURTH), THIRD, False),
        (ANONYMOUS, DIRECT, False),
        (ANONYMOUS, THIRD, False),
    ],
)
def test_a_broker_sends_its_own_requests_and_relays_others(
    scene: Scene, sender: Principal, via: int, may_send: bool
) -> None:
    request = AlterPartitionRequest(broker_id=FOURTH, via_broker=via)
    assert scene.relays.may_send(sender, request) is may_send


def test_a_controller_without_an_address_is_asked_through_others(scene: Scene) -> None:
    peer = scene.relays._proposal_peer
    scene.relays._proposal_peer = lambda node_id: None if node_id == CONTROLLER else peer(node_id)
    scene.loop.run_until_complete(scene.ask())
    assert scene.asked == [(THIRD, THIRD)]
    scene.outcomes = dict.fromkeys((THIRD, FOURTH), UNSENT)
    with pytest.raises(KafkaError):
        scene.loop.run_until_complete(scene.ask())


GONE = ControllerTerm(2, 50)


def test_the_successor_of_a_dead_controller_carries_the_request_out() -> None:
    with MemoryBroker() as world:
        link = world.broker.controller_link
        was_here = link.is_here
        world.metadata._term = GONE
        world.broker.metadata._learn(GONE)
        is_here = link.is_here

        async def here() -> CreateTopicsResponse:
            return CreateTopicsResponse()

        response = world.run(link.carry_out(CreateTopicsRequest(), here))
        assert isinstance(response, CreateTopicsResponse)
        assert [was_here, is_here, link.is_here] == [True, False, True], "no other broker lives"


def test_an_error_of_the_controller_is_final() -> None:
    calls = []

    async def here() -> CreateTopicsResponse:
        calls.append(1)
        raise KafkaError(ErrorCode.POLICY_VIOLATION)

    with MemoryBroker() as world, pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        world.run(world.broker.controller_link.carry_out(CreateTopicsRequest(), here))
    assert calls == [1]


def test_a_broker_that_is_not_the_controller_is_asked_again_for_some_time() -> None:
    async def here() -> CreateTopicsResponse:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    with MemoryBroker() as world:
        begun = world.clock.monotonic()
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            world.run(
                world.broker.controller_link.carry_out(CreateTopicsRequest(), here, patience_s=5)
            )
        assert 5 <= world.clock.monotonic() - begun < 6


class LostAnswers:
    """The connection to a controller: each request is lost, until one of them is answered."""

    def __init__(self, *errors: PeerError) -> None:
        self.errors = list(errors)

    async def request(self, message: object, *, timeout_s: float, newest: int | None) -> object:
        if self.errors:
            raise self.errors.pop(0)
        return CreateTopicsResponse()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryBroker]:
    """A broker for which broker 2 is the controller."""
    with MemoryBroker() as world:
        monkeypatch.setattr(world.broker.metadata, "_learn", lambda term: None)
        monkeypatch.setattr(world.broker.metadata, "_term", GONE)
        yield world


async def never() -> CreateTopicsResponse:
    raise AssertionError("the controller is another broker")


def test_a_request_that_may_arrive_later_is_not_repeated(elsewhere: MemoryBroker) -> None:
    link, peer = elsewhere.broker.controller_link, LostAnswers(PeerTimedOutError("late"))
    link._peer = lambda node_id: cast("Any", peer)
    with pytest.raises(PeerTimedOutError) as caught:
        elsewhere.run(link.carry_out(CreateTopicsRequest(), never))
    assert may_be_done(caught.value)


def test_a_repeatable_request_is_repeated_whatever_became_of_the_first(
    elsewhere: MemoryBroker,
) -> None:
    link = elsewhere.broker.controller_link
    peer = LostAnswers(PeerTimedOutError("late"), PeerDisconnectedError("lost"))
    link._peer = lambda node_id: cast("Any", peer)
    response = elsewhere.run(link.carry_out(CreateTopicsRequest(), never, is_repeatable=True))
    assert isinstance(response, CreateTopicsResponse)
    assert not peer.errors


def test_a_request_that_was_not_sent_is_repeated(elsewhere: MemoryBroker) -> None:
    link, peer = elsewhere.broker.controller_link, LostAnswers(PeerUnreachableError("down"))
    link._peer = lambda node_id: cast("Any", peer)
    response = elsewhere.run(link.carry_out(CreateTopicsRequest(), never))
    assert isinstance(response, CreateTopicsResponse)


def test_one_attempt_is_one_request(elsewhere: MemoryBroker) -> None:
    link, peer = elsewhere.broker.controller_link, LostAnswers(PeerUnreachableError("down"))
    link._peer = lambda node_id: cast("Any", peer)
    with pytest.raises(PeerUnreachableError) as caught:
        elsewhere.run(link.ask_once(CreateTopicsRequest(), never))
    assert not may_be_done(caught.value)


@pytest.mark.parametrize(
    ("code", "may_be"),
    [
        (ErrorCode.NOT_CONTROLLER, False),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
    ],
)
def test_only_a_broker_that_is_not_the_controller_has_surely_done_nothing(
    code: ErrorCode, may_be: bool
) -> None:
    assert may_be_done(KafkaError(code)) is may_be
