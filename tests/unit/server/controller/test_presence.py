"""Heartbeats through another broker while the controller does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lakelog.server.controller.presence import Presence
from lakelog.server.inter_broker.errors import PeerDisconnectedError
from memory_broker import InlineTasks
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop

CONTROLLER, SESSION_S = 2, 9.0


class Scene:
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
    scene = Scene(answered)
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
    scene = Scene(answer)
    scene.run(SESSION_S)
    assert scene.asked > 4
    assert not scene.reachable_brokers
    assert len(caplog.records) == (answer is broken)
    scene.close()


def test_a_broker_that_does_not_serve_sends_none() -> None:
    scene = Scene(answered)
    scene.serves = False
    scene.run(SESSION_S)
    assert not scene.asked
    scene.close()
