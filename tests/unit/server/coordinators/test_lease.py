"""A coordinator answers for half a session timeout after its image was confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.metadata.errors import MetadataUnavailable
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from lakelog.protocol.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lakelog.protocol.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from lakelog.runtime.aio import AsyncioTasks
from lakelog.server.coordinators.lease import Agreement, LaterLeaders, Lease
from lakelog.server.inter_broker.exchange import PeerTimedOutError
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from virtual_time import run_in_virtual_time
from waiting import until

SESSION_S = 9.0


class World:
    """A lease, the metadata store and the other brokers."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.failure: Exception | None = None
        self.is_stuck = False
        self.peers, self.peers_need_s = Agreement.OPEN, 0.0
        self.beats = self.answers = True
        self.beaten_s = self.answered_s = 0.0
        self.refreshed = self.asked = 0
        self.clock = SimulatedClock(loop)
        self.tasks = AsyncioTasks(loop)
        self.lease = Lease(
            self._refresh,
            self._heartbeat,
            self._contact,
            self._ask,
            SESSION_S,
            self.clock,
            self.tasks,
        )

    async def _refresh(self) -> None:
        self.refreshed += 1
        await until(lambda: not self.is_stuck, 3600.0, every_s=0.1)
        if self.failure is not None:
            raise self.failure

    def _heartbeat(self) -> float:
        if self.beats:
            self.beaten_s = self.clock.monotonic()
        return self.beaten_s

    def _contact(self) -> float:
        if self.answers:
            self.answered_s = self.clock.monotonic()
        return self.answered_s

    async def _ask(self) -> Agreement:
        self.asked += 1
        await asyncio.sleep(self.peers_need_s)
        return self.peers


def in_world(scenario: Callable[[World], Coroutine[None, None, None]]) -> None:
    async def main(loop: SimulatedLoop) -> None:
        world = World(loop)
        try:
            await scenario(world)
        finally:
            world.lease.stop()
            world.tasks.close()

    run_in_virtual_time(main)


def test_a_broker_alone_needs_none() -> None:
    async def scenario(world: World) -> None:
        await asyncio.sleep(100)
        assert world.lease.holds()
        assert world.refreshed == 0

    in_world(scenario)


def test_the_store_renews_it_without_the_others() -> None:
    async def scenario(world: World) -> None:
        world.lease.start()
        for _ in range(100):
            await asyncio.sleep(1)
            assert world.lease.holds()
        assert world.refreshed < 100
        assert world.asked == 0

    in_world(scenario)


@pytest.mark.parametrize(
    "failure", [KafkaError(ErrorCode.REQUEST_TIMED_OUT), MetadataUnavailable("cut off")]
)
def test_a_broker_that_is_cut_off_loses_it_before_its_session_ends(failure: Exception) -> None:
    async def scenario(world: World) -> None:
        world.lease.start()
        await asyncio.sleep(20)
        world.failure = failure
        await asyncio.sleep(0.9 * SESSION_S)
        assert not world.lease.holds()
        world.failure = None
        await asyncio.sleep(2)
        assert world.lease.holds()

    in_world(scenario)


def test_an_answer_of_the_store_counts_from_its_request() -> None:
    async def scenario(world: World) -> None:
        world.is_stuck = True
        world.lease.start()
        await asyncio.sleep(SESSION_S)
        assert not world.lease.holds()
        world.is_stuck = False
        await asyncio.sleep(0.2)
        assert not world.lease.holds(), "the image was complete long ago"
        await asyncio.sleep(2)
        assert world.lease.holds()

    in_world(scenario)


def test_without_the_store_the_others_renew_it_until_one_disagrees() -> None:
    async def scenario(world: World) -> None:
        world.lease.start()
        world.failure, world.peers = MetadataUnavailable("no quorum"), Agreement.FULL
        world.peers_need_s = 1.0
        for _ in range(100):
            await asyncio.sleep(1)
            assert world.lease.holds()
        world.peers = Agreement.OPEN
        await asyncio.sleep(0.6 * SESSION_S)
        assert not world.lease.holds()

    in_world(scenario)


def test_it_ends_to_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        now = world.clock.monotonic()
        world.lease.start()
        held = []
        for passed_s in (SESSION_S / 2 - 0.001, SESSION_S / 2):
            monkeypatch.setattr(world.clock, "monotonic", partial(float, now + passed_s))
            held.append(world.lease.holds())
        assert held == [True, False]

    in_world(scenario)


def test_it_ends_while_the_process_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        world.lease.start()
        await asyncio.sleep(5)
        now = world.clock.monotonic()
        monkeypatch.setattr(world.clock, "monotonic", lambda: now + SESSION_S)
        assert not world.lease.holds(), "before the first iteration of the loop"
        await asyncio.sleep(2)
        assert world.lease.holds()

    in_world(scenario)


def test_a_broker_that_reads_the_store_loses_it_with_its_heartbeats() -> None:
    async def scenario(world: World) -> None:
        world.lease.start()
        await asyncio.sleep(20)
        world.lease._heartbeat_s()
        world.beats = False
        await asyncio.sleep(0.85 * SESSION_S)
        held = world.lease.holds()
        await asyncio.sleep(0.1 * SESSION_S)
        assert (held, world.lease.holds()) == (True, False), "it may count as dead in a moment"
        world.beats = True
        await asyncio.sleep(2)
        assert world.lease.holds()

    in_world(scenario)


def test_a_broker_that_reads_the_store_loses_it_without_answers_of_the_controller() -> None:
    async def scenario(world: World) -> None:
        world.lease.start()
        await asyncio.sleep(20)
        world.lease._contact_s()
        world.answers = False
        await asyncio.sleep(0.55 * SESSION_S)
        held = world.lease.holds()
        await asyncio.sleep(0.1 * SESSION_S)
        assert (held, world.lease.holds()) == (True, False), "it may be fenced in a moment"
        world.answers = True
        await asyncio.sleep(2)
        assert world.lease.holds()

    in_world(scenario)


def test_it_ends_at_once_when_another_broker_knows_a_later_leader() -> None:
    async def scenario(world: World) -> None:
        world.lease.start()
        world.failure, world.peers = MetadataUnavailable("cut off"), Agreement.FULL
        await asyncio.sleep(20)
        assert world.lease.holds()
        world.peers = Agreement.DENIED
        await asyncio.sleep(0.2 * SESSION_S)
        assert not world.lease.holds()

    in_world(scenario)


def test_the_word_of_the_others_counts_for_a_third_of_a_session() -> None:
    async def scenario(world: World) -> None:
        world.lease.start()
        world.failure, world.peers = MetadataUnavailable("cut off"), Agreement.FULL
        await asyncio.sleep(20)
        world.peers = Agreement.OPEN
        await asyncio.sleep(0.35 * SESSION_S)
        assert not world.lease.holds()

    in_world(scenario)


def test_an_answer_to_an_older_question_revives_no_ended_lease() -> None:
    async def scenario(world: World) -> None:
        world.lease.start()
        await asyncio.sleep(20)
        world.is_stuck, world.peers = True, Agreement.DENIED
        await asyncio.sleep(0.4 * SESSION_S)
        assert not world.lease.holds()
        world.is_stuck = False
        await asyncio.sleep(0.2)
        assert not world.lease.holds()
        world.peers = Agreement.OPEN
        await asyncio.sleep(2)
        assert world.lease.holds()

    in_world(scenario)


def test_the_lease_is_renewed_after_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        world.lease.start()
        world.failure = RuntimeError("planted")
        await asyncio.sleep(SESSION_S)
        assert not world.lease.holds()
        world.failure = None
        await asyncio.sleep(SESSION_S / 2)
        assert world.lease.holds()

    in_world(scenario)
    assert [each.__dict__["event"] for each in caplog.records] == ["task_failed"]


def test_a_denial_ends_it_until_this_broker_is_confirmed_again() -> None:
    async def scenario(world: World) -> None:
        world.lease.start()
        await asyncio.sleep(1)
        world.lease.deny()
        world.answers, world.answered_s = False, float("-inf")
        assert not world.lease.holds()
        await asyncio.sleep(SESSION_S)
        assert not world.lease.holds()
        world.answers = True
        await asyncio.sleep(SESSION_S / 4)
        assert world.lease.holds()

    in_world(scenario)


def test_a_lease_that_is_denied_before_its_begin_does_not_begin() -> None:
    async def scenario(world: World) -> None:
        world.answers, world.answered_s = False, float("-inf")
        world.lease.deny()
        world.lease.start()
        await asyncio.sleep(1)
        assert not world.lease.holds()

    in_world(scenario)


OWN, SECOND, THIRD = 1, 2, 3
EPOCH = 5


class OtherBroker:
    """Knows the leader epochs of `__consumer_offsets`, or does not answer."""

    def __init__(
        self,
        *epochs: int,
        answers: bool = True,
        controller: int = SECOND,
        grants: bool = True,
    ) -> None:
        self.epochs = epochs
        self.controller = controller
        self.answers = answers
        self.grants = grants
        self.requests: list[Any] = []

    async def request(
        self, message: Any, *, timeout_s: float
    ) -> BrokerHeartbeatResponse | MetadataResponse:
        self.requests.append(message)
        if not self.answers:
            await asyncio.sleep(timeout_s)
            raise PeerTimedOutError("silent")
        if isinstance(message, BrokerHeartbeatRequest):
            return BrokerHeartbeatResponse(is_lease_granted=self.grants)
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_epoch=epoch)
            for index, epoch in enumerate(self.epochs)
        ]
        topic = MetadataResponseTopic(name=GROUP_TOPIC, partitions=partitions)
        return MetadataResponse(topics=[topic], controller_id=self.controller)


def ask(
    peers: dict[int, OtherBroker],
    *,
    fenced: tuple[int, ...] = (),
    isr: tuple[int, ...] = (1, 2, 3),
    elr: tuple[int, ...] = (),
) -> Agreement:
    return timed(peers, fenced=fenced, isr=isr, elr=elr)[0]


def timed(
    peers: dict[int, OtherBroker],
    *,
    fenced: tuple[int, ...] = (),
    isr: tuple[int, ...] = (1, 2, 3),
    elr: tuple[int, ...] = (),
) -> tuple[Agreement, float]:
    """Return the answer and the seconds until it came."""
    records: list[Record] = [
        *(BrokerRecord(n, bytes([n]) * 16, 1, (), None) for n in (OWN, SECOND, THIRD)),
        TopicRecord(GROUP_TOPIC, b"g" * 16),
        PartitionRecord(b"g" * 16, 0, (1, 2, 3), isr, 1, EPOCH, 0, elr),
        *(BrokerFenced(n, 1) for n in fenced),
    ]
    image = MetadataImage().apply_all(records, 1)
    found: Any = peers
    leaders = LaterLeaders(OWN, lambda: image, lambda: SECOND, found.get)

    async def main(_: object) -> tuple[Agreement, float]:
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        return await leaders.ask(), loop.time() - before_s

    return run_in_virtual_time(main)


def none_known(peers: dict[int, OtherBroker], **image: tuple[int, ...]) -> bool:
    return ask(peers, **image) is Agreement.FULL


def test_all_others_have_to_agree() -> None:
    second, third = OtherBroker(EPOCH), OtherBroker(EPOCH - 1)
    assert none_known({SECOND: second, THIRD: third})
    assert not none_known({SECOND: second})
    assert not none_known({SECOND: second, THIRD: OtherBroker(EPOCH, answers=False)})
    for broker in (second, third):
        wanted, question, *_ = broker.requests
        assert (wanted.broker_id, wanted.want_lease) == (OWN, True)
        assert isinstance(question, MetadataRequest)
        assert not question.allow_auto_topic_creation
        assert question.lease_of == -1


def test_a_fenced_broker_that_is_eligible_has_to_agree() -> None:
    second = {SECOND: OtherBroker(EPOCH)}
    assert not none_known(second, fenced=(THIRD,), isr=(OWN,), elr=(THIRD,))
    third = {THIRD: OtherBroker(EPOCH + 1)}
    assert not none_known(second | third, fenced=(THIRD,), isr=(OWN,), elr=(THIRD,))


def test_a_fenced_broker_is_not_asked() -> None:
    assert none_known({SECOND: OtherBroker(EPOCH)}, fenced=(THIRD,))


@pytest.mark.parametrize("epochs", [(EPOCH + 1,), (EPOCH, 0)])
def test_a_later_leader_or_a_new_partition_is_noticed(epochs: tuple[int, ...]) -> None:
    assert not none_known({SECOND: OtherBroker(EPOCH), THIRD: OtherBroker(*epochs)})


def test_a_controller_that_this_broker_does_not_know_may_replace_it() -> None:
    for controller in (THIRD, -1):
        third = OtherBroker(EPOCH, controller=controller)
        assert not none_known({SECOND: OtherBroker(EPOCH), THIRD: third})


def test_a_later_leader_in_its_place_differs_from_silence() -> None:
    later, silent = OtherBroker(EPOCH + 1), OtherBroker(EPOCH, answers=False)
    assert ask({SECOND: silent, THIRD: later}) is Agreement.DENIED
    assert ask({SECOND: silent, THIRD: OtherBroker(EPOCH)}) is Agreement.OPEN
    assert ask({SECOND: OtherBroker(EPOCH), THIRD: OtherBroker(EPOCH, 0)}) is Agreement.OPEN


def test_a_broker_that_grants_no_lease_still_denies() -> None:
    """An older version, or a controller that has found this broker dead."""
    second = OtherBroker(EPOCH)
    assert ask({SECOND: second, THIRD: OtherBroker(EPOCH, grants=False)}) is Agreement.OPEN
    later = OtherBroker(EPOCH + 1, grants=False)
    assert ask({SECOND: second, THIRD: later}) is Agreement.DENIED


def test_several_silent_brokers_take_no_longer_than_one() -> None:
    silent = OtherBroker(EPOCH, answers=False)
    answer, one_s = timed({SECOND: silent, THIRD: OtherBroker(EPOCH)})
    assert answer is Agreement.OPEN
    answer, both_s = timed({SECOND: silent, THIRD: silent})
    assert answer is Agreement.OPEN
    assert both_s == one_s > 0
