"""Other brokers confirm the leaders of the coordinators' partitions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakelog.coordinator.group.coordinator import GROUP_TOPIC
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
from lakelog.server.coordinators.later_leaders import Agreement, LaterLeaders
from lakelog.server.inter_broker.errors import PeerTimedOutError
from virtual_time import run_in_virtual_time

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
