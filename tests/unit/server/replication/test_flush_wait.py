"""A follower waits for its own flush before it reports records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.server.replication.flush_wait import being_flushed, flushed
from memory_broker import MemoryBroker
from replica_pair import FOLLOWER, LEADER, ReplicaPair
from storage_kit import NOW, make_batch


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with MemoryBroker() as broker:
        yield broker


@pytest.fixture
def follower(broker: MemoryBroker) -> Partition:
    """With a copied batch that is not durable."""
    follower = ReplicaPair(broker).follower
    follower.use_config(follower.log.config._replace(durability="fsync"))
    epoch = follower.leader_epoch
    follower.assume(Role(epoch + 1, FOLLOWER, True, (FOLLOWER,)), 0)
    follower.append(make_batch(2), NOW)
    follower.assume(Role(epoch + 2, LEADER, False, (LEADER, FOLLOWER)), 0)
    return follower


class Waiting:
    def __init__(self, broker: MemoryBroker, follower: Partition, deadline: float = 60.0) -> None:
        self.broker, self.follower = broker, follower
        self.is_over = False
        self.task = broker.tasks.spawn(self._run(deadline + broker.clock.monotonic()), name="wait")
        broker.pass_time(0.01)

    async def _run(self, deadline: float) -> None:
        waiting = being_flushed([self.follower])
        if waiting:
            await flushed(waiting, self.broker.broker.purgatory, self.broker.tasks, deadline)
        self.is_over = True

    def check(self) -> bool:
        self.broker.broker.purgatory.check(self.follower.key)
        self.broker.pass_time(0.01)
        return self.is_over


def test_it_ends_with_the_flush(broker: MemoryBroker, follower: Partition) -> None:
    waiting = Waiting(broker, follower)
    assert not waiting.check()
    follower.log.flush()
    assert waiting.check()
    assert Waiting(broker, follower).is_over, "nothing is left to wait for"


def test_it_ends_at_the_deadline(broker: MemoryBroker, follower: Partition) -> None:
    waiting = Waiting(broker, follower, deadline=0.5)
    broker.pass_time(0.4)
    assert not waiting.check()
    broker.pass_time(0.2)
    assert waiting.check()
    assert not len(broker.broker.purgatory)


def test_a_log_that_fails_or_is_led_is_not_waited_for(
    broker: MemoryBroker, follower: Partition
) -> None:
    waiting = Waiting(broker, follower)
    follower.assume(Role(follower.leader_epoch + 1, FOLLOWER, True, (FOLLOWER,)), 0)
    assert waiting.check()
    follower.assume(Role(follower.leader_epoch + 1, LEADER, False, (LEADER,)), 0)
    waiting = Waiting(broker, follower)
    assert not waiting.is_over
    follower.take_offline("test")
    assert waiting.check()


def test_a_cancelled_wait_leaves_nothing_behind(broker: MemoryBroker, follower: Partition) -> None:
    waiting = Waiting(broker, follower)
    assert len(broker.broker.purgatory) == 1
    waiting.task.cancel()
    broker.pass_time(0.01)
    assert not len(broker.broker.purgatory)
