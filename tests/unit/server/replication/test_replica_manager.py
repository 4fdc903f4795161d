"""The replicas of a broker follow the metadata image."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.replica.role import Role
from lakelog.server.replication.replica_manager import RoleChanges
from memory_broker import MemoryBroker
from replica_pair import FOLLOWER, LEADER, ReplicaPair


class Wait:
    tried = 0

    def try_complete(self) -> bool:
        self.tried += 1
        return True

    def expire(self) -> None:
        raise AssertionError("not expected to expire")

    def fail(self, error: Exception) -> None:
        raise error


def test_a_deletion_wakes_requests_that_wait_on_the_topic() -> None:
    with MemoryBroker() as world:
        topic_id = world.create("orders", 2)
        world.create("others")
        partitions = world._server._replicas.partitions
        waits = [Wait(), Wait()]
        deadline = world.clock.monotonic() + 3600
        for wait, name in zip(waits, ("orders", "others"), strict=True):
            world.broker.purgatory.park(wait, [partitions.leader(name, 0).key], deadline)
        world.delete("orders")
        world.pass_time(0.01)
        assert [wait.tried for wait in waits] == [1, 0]
        assert partitions.get(topic_id, 1) is None


def test_a_new_partition_is_announced_to_coordinators() -> None:
    with MemoryBroker() as world:
        world.start_coordinators()
        assert world.broker.groups.partitions != []


def test_a_single_broker_changes_no_isr() -> None:
    with MemoryBroker() as world:
        world._server._replicas.serve()
        assert world._server._replicas.isr_manager._timer is None


@pytest.fixture
def pair() -> Iterator[ReplicaPair]:
    with MemoryBroker() as broker:
        yield ReplicaPair(broker)


def test_each_change_of_an_isr_or_a_leader_counts_once(pair: ReplicaPair) -> None:
    changes = pair.broker._server._replicas.role_changes

    def counts() -> tuple[int, int, int]:
        return changes.elections, changes.isr_shrinks, changes.isr_expansions

    elections, shrinks, expansions = counts()
    pair.change((LEADER,))
    assert counts() == (elections, shrinks + 1, expansions)
    pair.change((LEADER,))
    assert counts() == (elections, shrinks + 1, expansions)
    pair.change((LEADER, FOLLOWER))
    assert counts() == (elections, shrinks + 1, expansions + 1)
    pair.change((LEADER, FOLLOWER), epoch_rises=True)
    assert counts() == (elections + 1, shrinks + 1, expansions + 1)


def test_followers_and_partitions_without_other_replicas_do_not_count(pair: ReplicaPair) -> None:
    changes = RoleChanges()
    follower = pair.follower
    changes.note_role(follower)
    follower.assume(Role(9, LEADER, False, (LEADER,)), 0)
    changes.note_role(follower)
    follower.assume(Role(10, FOLLOWER, True, (FOLLOWER,)), 0)
    changes.note_role(follower)
    assert (changes.elections, changes.isr_shrinks, changes.isr_expansions) == (0, 0, 0)
    follower.retire()
    changes.note_role(follower)
    assert not changes._last
