"""A leader's ISR, over its own controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerFenced, BrokerRecord, PartitionRecord
from lakelog.replica.partition import Partition
from memory_broker import MemoryBroker

LEADER, FOLLOWER, EPOCH = 1, 2, 4


class Led:
    """A partition with a follower, whose fetches the test reports."""

    def __init__(self, world: MemoryBroker) -> None:
        self.world = world
        self.topic_id = world.create("t")
        follower = BrokerRecord(FOLLOWER, b"f" * 16, EPOCH, (), None)
        state = PartitionRecord(self.topic_id, 0, (LEADER, FOLLOWER), (LEADER,), LEADER, 1, 1)
        self.submit(follower, state)
        world.append("t", count=3)
        world._server._in_sync.start()

    def submit(self, *records: BrokerRecord | BrokerFenced | PartitionRecord) -> None:
        def plan(image: MetadataImage) -> Plan[None]:
            return Plan(records, None)

        self.world.run(self.world.broker.metadata.submit(plan))

    def fetch(self, offset: int, epoch: int = EPOCH) -> None:
        now_ms = int(self.world.clock.monotonic() * 1000)
        self.world.partition("t").note_fetch(FOLLOWER, epoch, offset, now_ms)

    def state(self) -> PartitionImage:
        return self.world.broker.image.topics_by_id[self.topic_id].partitions[0]


@pytest.fixture
def led() -> Iterator[Led]:
    with MemoryBroker(replica_lag_time_max_ms="2000") as world:
        yield Led(world)


def test_a_follower_joins_when_it_has_caught_up_and_leaves_when_it_stops(led: Led) -> None:
    led.world.pass_time(1)
    assert led.state().isr == (LEADER,)
    led.fetch(3)
    led.world.pass_time(1)
    assert led.state().isr == (LEADER, FOLLOWER)
    led.world.append("t")
    assert led.world.partition("t").watermark.offset == 3
    led.world.pass_time(4)
    assert led.state().isr == (LEADER,)
    assert led.world.partition("t").watermark.offset == 4


def test_a_refused_proposal_does_not_hold_the_watermark_back(led: Led) -> None:
    led.fetch(3)
    led.world.partition("t").propose_isr((LEADER, FOLLOWER))
    led.submit(BrokerFenced(FOLLOWER, EPOCH))
    led.world.append("t")
    wanted: dict[Partition, tuple[int, ...]] = {led.world.partition("t"): (LEADER, FOLLOWER)}
    led.world.run(led.world._server._in_sync._ask(wanted))
    assert led.state().isr == (LEADER,)
    assert led.world.partition("t").watermark.offset == 4
