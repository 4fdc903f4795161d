"""A leader's ISR, over its own controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerFenced, BrokerRecord, PartitionRecord
from lakelog.protocol.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from lakelog.replica.partition import Partition
from memory_broker import MemoryBroker
from storage_kit import NOW, make_batch

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
        world._server._replicas.in_sync.start()

    def submit(self, *records: BrokerRecord | BrokerFenced | PartitionRecord) -> None:
        def plan(image: MetadataImage) -> Plan[None]:
            return Plan(records, None)

        self.world.run(self.world.broker.metadata.submit(plan))

    def fetch(self, offset: int, epoch: int = EPOCH) -> None:
        now_ms = self.world.clock.monotonic_ms()
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
    wanted: dict[Partition, tuple[int, ...]] = {led.world.partition("t"): (LEADER, FOLLOWER)}
    in_sync = led.world._server._replicas.in_sync
    known = in_sync._propose(wanted)
    led.submit(BrokerFenced(FOLLOWER, EPOCH))
    led.world.append("t")
    led.world.run(in_sync._ask(known, wanted))
    assert led.state().isr == (LEADER,)
    assert led.world.partition("t").watermark.offset == 4


def test_a_member_counts_from_the_turn_that_found_it_caught_up(led: Led) -> None:
    led.fetch(3)
    led.world._server._replicas.in_sync._turn()
    led.world.partition("t").append(make_batch(1), NOW)
    assert led.world.partition("t").watermark.offset == 3


def test_a_proposal_without_an_answer_is_repeated(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(request: AlterPartitionRequest) -> AlterPartitionResponse:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    with monkeypatch.context() as patched:
        patched.setattr(led.world._server._replicas.in_sync, "_alter", lost)
        led.fetch(3)
        led.world.pass_time(1)
    led.submit(BrokerFenced(FOLLOWER, EPOCH))
    led.world.append("t")
    led.world.pass_time(2)
    assert led.state().isr == (LEADER,)
    assert led.world.partition("t").watermark.offset == 4


def test_a_member_that_joined_and_was_fenced_at_once_does_not_count(led: Led) -> None:
    led.fetch(3)
    partition, old = led.world.partition("t"), led.state()
    in_sync = led.world._server._replicas.in_sync
    in_sync._propose({partition: (LEADER, FOLLOWER)})
    joined = PartitionRecord(
        led.topic_id,
        *old._replace(isr=(LEADER, FOLLOWER), partition_epoch=old.partition_epoch + 1),
    )
    led.submit(joined, BrokerFenced(FOLLOWER, EPOCH))
    led.world.append("t")
    led.world.pass_time(1)
    assert led.state().isr == (LEADER,)
    assert partition.watermark.offset == 4


def test_a_partition_that_went_offline_with_an_open_proposal_keeps_its_isr(led: Led) -> None:
    in_sync = led.world._server._replicas.in_sync
    partition = led.world.partition("t")
    led.fetch(3)
    in_sync._propose({partition: (LEADER, FOLLOWER)})
    partition.take_offline("the disk failed")
    assert not partition.serves
    found = in_sync._proposals(led.world.clock.monotonic_ms(), may_shrink=True)
    assert found == {partition: (LEADER,)}
