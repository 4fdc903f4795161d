from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.replica.role import Role
from lakelog.server.replication.role_changes import RoleChanges
from memory_broker import MemoryBroker
from replica_pair import FOLLOWER, LEADER, ReplicaPair


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
