"""The decision to replace a controller that most live brokers miss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.errors import MetadataUnavailable
from lakelog.metadata.store.api import ControllerTerm
from lakelog.protocol.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lakelog.protocol.cluster import DescribeClusterRequest, DescribeClusterResponse
from lakelog.server.authentication import Process
from lakelog.server.controller.succession import NO_TERM, Presence, Succession
from lakelog.server.inter_broker.exchange import PeerDisconnectedError, PeerTimedOutError
from lakelog.server.inter_broker.silence import Silence
from memory_broker import InlineTasks
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop

OWN, CONTROLLER = 1, 2
SESSION_S, TICK_S, EPOCH = 9.0, 0.25, 7
MUTE = None
"""The answer of a broker that does not answer."""


class ScriptedPeer:
    """The connection to a broker, which misses the controller or not."""

    def __init__(self, node_id: int, scene: Scene) -> None:
        self.node_id = node_id
        self._scene = scene

    async def request(
        self, message: DescribeClusterRequest, *, timeout_s: float
    ) -> DescribeClusterResponse:
        assert message.missing == CONTROLLER
        self._scene.asked.append(self.node_id)
        answer = self._scene.answers[self.node_id]
        if answer is MUTE:
            await asyncio.sleep(timeout_s)
            raise PeerTimedOutError("no response in time")
        await asyncio.sleep(0.01)
        return DescribeClusterResponse(is_missing=answer)


class Scene:
    """Broker 1 of a cluster whose controller is broker 2.

    answers: of the other brokers, whether they miss the controller.
    dead: brokers that the store counts as dead.
    """

    def __init__(self) -> None:
        self.loop = SimulatedLoop(None)
        self.term = ControllerTerm(CONTROLLER, EPOCH, b"2" * 16)
        self.answers: dict[int, bool | None] = {}
        self.dead: set[int] = set()
        self.asked: list[int] = []
        self.reviews = 0
        self.has_store = True
        self.silence = Silence(SESSION_S, TICK_S)
        self.succession = Succession(
            OWN,
            cast("Any", self),
            lambda: cast("Any", [ScriptedPeer(each, self) for each in (CONTROLLER, *self.answers)]),
            self.silence,
            SESSION_S,
            SimulatedClock(self.loop),
            InlineTasks(self.loop),
        )
        self.succession.note_term()

    @property
    def controller_id(self) -> int:
        return self.term.broker_id

    async def live_brokers(self) -> Mapping[int, bytes]:
        if not self.has_store:
            raise MetadataUnavailable("planted")
        live = {OWN, CONTROLLER, *self.answers} - self.dead
        return {each: bytes([each]) * 16 for each in live}

    def review(self) -> None:
        self.reviews += 1

    def reach(self, **answers: bool | None) -> None:
        """Have the brokers answer now, for the last time; names are "b" and the node id."""
        self.answers = {int(name[1:]): answer for name, answer in answers.items()}
        processes = [Process(each, bytes([each]) * 16) for each in (CONTROLLER, *self.answers)]
        self.silence.follow(processes, 0.0)
        for each in processes:
            self.silence.note_answer(each, 0.0)

    def pass_s(self, seconds: float) -> None:
        """Let the controller be silent."""

        async def wait() -> None:
            for _ in range(round(seconds / TICK_S)):
                await asyncio.sleep(TICK_S)
                self.silence.tick(TICK_S)
                self.succession.note_silence()

        self.loop.run_until_complete(wait())

    def settle(self) -> None:
        """Let the first session of the term pass, in which the controller answers."""
        self.loop.run_until_complete(asyncio.sleep(SESSION_S))


@pytest.fixture
def scene() -> Iterator[Scene]:
    found = Scene()
    yield found
    found.succession.stop()
    found.loop.run_until_complete(asyncio.sleep(SESSION_S))
    found.loop.close()


@pytest.mark.parametrize(
    ("answers", "dead", "is_replaced"),
    [
        ({"b3": True}, (), True),
        ({"b3": False}, (), False),
        ({"b3": MUTE}, (), False),
        ({}, (), False),
        ({"b3": True, "b4": False}, (), False),
        ({"b3": True, "b4": True}, (), True),
        ({"b3": True, "b4": True, "b5": False}, (), True),
        ({"b3": True, "b4": MUTE, "b5": MUTE}, (), False),
        ({"b3": True, "b4": MUTE, "b5": MUTE}, (5,), False),
        ({"b3": True, "b4": MUTE, "b5": MUTE}, (4, 5), True),
        ({"b3": MUTE}, (3,), False),
    ],
)
def test_more_than_half_of_the_live_brokers_have_to_miss_the_controller(
    scene: Scene, answers: dict[str, bool | None], dead: tuple[int, ...], is_replaced: bool
) -> None:
    scene.reach(**answers)
    scene.dead = set(dead)
    scene.settle()
    scene.pass_s(SESSION_S * 0.4)
    assert (scene.reviews > 0) is is_replaced
    assert scene.succession.missed_epoch == (EPOCH if is_replaced else NO_TERM)
    assert CONTROLLER not in scene.asked


def test_a_controller_that_answered_a_moment_ago_is_not_asked_about(scene: Scene) -> None:
    scene.reach(b3=True)
    scene.settle()
    scene.pass_s(SESSION_S * 0.3 - TICK_S)
    assert not scene.asked
    scene.pass_s(2 * TICK_S)
    assert scene.asked == [3]


def test_a_controller_that_answers_again_keeps_the_term(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.reach(b3=True)
    scene.settle()
    scene.pass_s(SESSION_S)
    assert scene.succession.missed_epoch == EPOCH
    assert [each.__dict__["event"] for each in caplog.records] == ["controller_missed"]
    scene.silence.note_answer(Process(CONTROLLER, bytes([CONTROLLER]) * 16), 0.0)
    assert scene.succession.missed_epoch == NO_TERM
    asked = len(scene.asked)
    scene.pass_s(SESSION_S * 0.2)
    assert len(scene.asked) == asked


def test_an_earlier_vote_does_not_count_in_a_later_silence(scene: Scene) -> None:
    scene.reach(b3=True)
    scene.settle()
    scene.pass_s(SESSION_S)
    assert scene.succession.missed_epoch == EPOCH
    scene.answers[3] = False
    scene.silence.note_answer(Process(CONTROLLER, bytes([CONTROLLER]) * 16), 0.0)
    scene.pass_s(SESSION_S * 0.2)
    for _ in range(round(SESSION_S * 0.2 / TICK_S)):
        scene.silence.tick(TICK_S)  # the silence is noticed before anything is asked
    assert scene.succession.missed_epoch == NO_TERM


def test_brokers_that_the_store_counts_as_dead_have_no_vote(scene: Scene) -> None:
    scene.reach(b3=True, b4=True, b5=False)
    scene.dead = {3, 4}
    scene.settle()
    scene.pass_s(SESSION_S * 0.4)
    assert scene.succession.missed_epoch == NO_TERM


def test_a_stopped_broker_asks_no_more(scene: Scene) -> None:
    scene.reach(b3=True)
    scene.settle()
    scene.succession.stop()
    scene.pass_s(SESSION_S * 0.4)
    assert not scene.asked


def test_the_question_is_repeated_until_others_miss_the_controller(scene: Scene) -> None:
    scene.reach(b3=False)
    scene.settle()
    scene.pass_s(SESSION_S)
    assert 3 <= len(scene.asked) <= 6
    scene.answers[3] = True
    scene.pass_s(SESSION_S / 4)
    assert scene.reviews


def test_a_vote_counts_only_while_the_others_agree_and_the_store_answers(scene: Scene) -> None:
    scene.reach(b3=True)
    scene.settle()
    scene.pass_s(SESSION_S / 2)
    assert scene.succession.missed_epoch == EPOCH
    scene.answers[3] = False
    scene.pass_s(SESSION_S / 4)
    assert scene.succession.missed_epoch == NO_TERM
    scene.answers[3] = True
    scene.pass_s(SESSION_S / 4)
    assert scene.succession.missed_epoch == EPOCH
    scene.has_store = False
    scene.pass_s(SESSION_S / 4)
    assert scene.succession.missed_epoch == NO_TERM


def test_a_term_is_left_alone_for_its_first_session(scene: Scene) -> None:
    scene.reach(b3=True)
    scene.settle()
    scene.term = ControllerTerm(CONTROLLER, EPOCH + 1, b"2" * 16)
    scene.succession.note_term()
    scene.pass_s(SESSION_S * 0.9)
    assert not scene.asked
    scene.pass_s(SESSION_S * 0.3)
    assert scene.succession.missed_epoch == EPOCH + 1


def test_a_vote_about_a_former_term_does_not_count(scene: Scene) -> None:
    scene.reach(b3=True)
    scene.settle()
    live_brokers = scene.live_brokers

    async def after_an_election() -> Mapping[int, bytes]:
        scene.term = ControllerTerm(CONTROLLER, EPOCH + 1, b"2" * 16)
        return await live_brokers()

    scene.live_brokers = after_an_election  # type: ignore[method-assign]
    scene.pass_s(SESSION_S * 0.3 + TICK_S)
    assert scene.asked
    assert scene.succession.missed_epoch == NO_TERM


def test_a_bug_ends_no_later_question(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.reach(b3=True)
    scene.settle()
    live_brokers = scene.live_brokers

    async def broken() -> Mapping[int, bytes]:
        raise RuntimeError("planted")

    scene.live_brokers = broken  # type: ignore[method-assign]
    scene.pass_s(SESSION_S * 0.4)
    assert [each.__dict__["event"] for each in caplog.records] == ["task_failed"]
    scene.live_brokers = live_brokers  # type: ignore[method-assign]
    scene.pass_s(SESSION_S * 0.3)
    assert scene.succession.missed_epoch == EPOCH


class PresenceScene:
    """A controller that is asked through others; `reachable_brokers` are the calls that it
    answered."""

    controller_id = CONTROLLER

    def __init__(self, answer: Callable[[], BrokerHeartbeatResponse]) -> None:
        self.loop = SimulatedLoop(None)
        self.are_needed = self.serves = True
        self.asked = 0
        self.reachable_brokers: list[tuple[int, float]] = []
        self._answer = answer
        own = cast("Any", self)
        self.presence = Presence(
            own,
            own,
            self.heartbeat,
            own,
            SESSION_S,
            SimulatedClock(self.loop),
            InlineTasks(self.loop),
        )

    def heartbeat(self) -> BrokerHeartbeatRequest | None:
        return BrokerHeartbeatRequest(broker_id=1) if self.serves else None

    async def ask(
        self, controller_id: int, request: object, *, through_others: bool
    ) -> BrokerHeartbeatResponse:
        assert controller_id == CONTROLLER
        self.asked += 1
        await asyncio.sleep(0.1)
        return self._answer()

    def note_relayed_answer(self, node_id: int, called_s: float) -> None:
        self.reachable_brokers.append((node_id, called_s))

    def run(self, seconds: float) -> None:
        self.presence.note_silence()
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def close(self) -> None:
        self.presence.stop()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


def answered() -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(answered_by=CONTROLLER)


def unreached() -> BrokerHeartbeatResponse:
    raise KafkaError(ErrorCode.NOT_CONTROLLER)


def lost() -> BrokerHeartbeatResponse:
    raise PeerDisconnectedError("its connection was closed after another request")


def broken() -> BrokerHeartbeatResponse:
    raise RuntimeError("planted")


def test_the_controller_sees_this_broker_several_times_in_a_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = PresenceScene(answered)
    begun = scene.loop.time()
    scene.run(SESSION_S)
    assert len(scene.reachable_brokers) == 6
    node_id, called_s = scene.reachable_brokers[0]
    assert (node_id, called_s) == (CONTROLLER, begun), "the begin of the call counts"
    assert [each.__dict__["event"] for each in caplog.records] == ["controller_relayed"]
    scene.are_needed = False
    scene.run(SESSION_S)
    assert len(scene.reachable_brokers) <= 7
    scene.are_needed = True
    scene.run(SESSION_S)
    assert len(scene.reachable_brokers) > 10, "it begins again"
    scene.close()


@pytest.mark.parametrize("answer", [unreached, lost, broken, BrokerHeartbeatResponse])
def test_a_failed_heartbeat_is_repeated_and_no_contact(
    answer: Callable[[], BrokerHeartbeatResponse], caplog: pytest.LogCaptureFixture
) -> None:
    scene = PresenceScene(answer)
    scene.run(SESSION_S)
    assert scene.asked > 4
    assert not scene.reachable_brokers
    assert len(caplog.records) == (answer is broken)
    scene.close()


def test_a_broker_that_does_not_serve_sends_none() -> None:
    scene = PresenceScene(answered)
    scene.serves = False
    scene.run(SESSION_S)
    assert not scene.asked
    scene.close()
