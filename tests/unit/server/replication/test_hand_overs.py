"""A leader hands over to the preferred replica, over a link to the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.records import BrokerFenced
from late_answers import CONTROLLER, EPOCH, FOLLOWER, LEADER, LateAnswers
from storage_kit import NOW, make_batch

PREFERRED = (FOLLOWER, LEADER, CONTROLLER)


@pytest.fixture
def scene() -> Iterator[LateAnswers]:
    made = LateAnswers("answered", replicas=PREFERRED)
    yield made
    made.close()


class Load:
    """A producer with acks=1, and a follower that is always one fetch behind."""

    def __init__(self, scene: LateAnswers) -> None:
        self.scene = scene
        self.acknowledged = 3
        self.rejected = 0

    async def run(self, seconds: float) -> None:
        partition, end = self.scene.partition, 3
        for _ in range(int(seconds / 0.003)):
            if not partition.role.is_leader:
                return
            self.append()
            await asyncio.sleep(0.003)
            if partition.role.is_leader:
                self.scene.fetch(CONTROLLER, end)
                self.scene.fetch(FOLLOWER, end)
                end = partition.log.log_end_offset

    def append(self) -> None:
        partition = self.scene.partition
        try:
            partition.append(make_batch(1), NOW)
        except KafkaError as error:
            assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            self.rejected += 1
        else:
            self.acknowledged = partition.log.log_end_offset


def end_of(scene: LateAnswers) -> int:
    follower = scene.partition.followers.get(FOLLOWER)
    assert follower is not None
    return follower.end_offset


def test_a_replica_that_joins_at_the_high_watermark_does_not_lead_yet(scene: LateAnswers) -> None:
    scene.partition.append(make_batch(1), NOW)
    assert scene.partition.watermark.offset == end_of(scene) == 3
    scene.pass_time(1)
    assert FOLLOWER in scene.state().isr
    assert scene.state().leader == LEADER, "it lacks a record that was acknowledged with acks=1"
    scene.fetch(CONTROLLER, 4)
    scene.fetch(FOLLOWER, 4)
    scene.pass_time(6)
    assert scene.state().leader == FOLLOWER


def test_it_takes_over_under_load_with_all_acknowledged_records(scene: LateAnswers) -> None:
    load, follower = Load(scene), scene.partition.followers.get(FOLLOWER)
    assert follower is not None
    scene.run(load.run(3))
    assert scene.state().leader == FOLLOWER
    assert follower.end_offset >= load.acknowledged > 3, "in the leader epoch of its leader"
    assert 0 < load.rejected < 80, "a quarter of a second"


def test_records_that_wait_for_all_replicas_are_appended_meanwhile(scene: LateAnswers) -> None:
    partition = scene.partition
    partition.hold()
    assert partition.append_coalesced([memoryview(make_batch(1))], NOW) == []
    with pytest.raises(KafkaError, match="about to lead"):
        partition.append(make_batch(1), NOW)
    partition.append(make_batch(1), NOW, acks_all=True)
    partition.append(make_batch(1), NOW, origin="coordinator")
    partition.release()
    partition.append(make_batch(1), NOW)
    assert partition.log.log_end_offset == 6


def test_a_replica_that_is_far_behind_holds_nothing_back(scene: LateAnswers) -> None:
    scene.pass_time(0.4)
    scene.log.write(BrokerFenced(FOLLOWER, EPOCH))
    load = Load(scene)
    load.append()
    scene.pass_time(2)
    load.append()
    assert load.rejected == 0


@pytest.mark.parametrize("script", ["late", "answer lost"])
def test_an_answer_that_does_not_come_holds_records_back_for_a_second(script: str) -> None:
    scene = LateAnswers(script, replicas=PREFERRED)
    scene.reads_store = False
    scene.pass_time(0.6 if script == "late" else 0.4)
    scene.pass_time(1.2)
    load = Load(scene)
    load.append()
    assert load.rejected == 0
    scene.close()


def test_a_controller_that_keeps_leaders_is_asked_once() -> None:
    scene = LateAnswers("answered", replicas=PREFERRED, keeps_leaders=True)
    scene.pass_time(1)
    assert scene.state().isr == (FOLLOWER, LEADER, CONTROLLER)
    scene.fetch(CONTROLLER, 3)
    scene.fetch(FOLLOWER, 3)
    scene.pass_time(30)
    assert scene.state().leader == LEADER
    assert len(scene.peer.codes) <= 2
    scene.close()
