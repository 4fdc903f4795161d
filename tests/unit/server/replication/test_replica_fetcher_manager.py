"""Which partitions are copied from which leader."""

from __future__ import annotations

from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.server.replication.replica_fetcher_manager import ReplicaFetcherManager
from storage_kit import memory_store


class RecordedFetcher:
    """Keeps the partitions that it is to copy."""

    def __init__(self) -> None:
        self.partitions: set[Partition] = set()
        self.is_stopped = False

    def add(self, partition: Partition) -> None:
        self.partitions.add(partition)

    def remove(self, partition: Partition) -> None:
        self.partitions.remove(partition)

    def stop(self) -> None:
        self.is_stopped = True


class Followed:
    """The replication of a broker, its fetchers, and one partition."""

    def __init__(self) -> None:
        self.fetchers: dict[int, RecordedFetcher] = {}
        self.replication = ReplicaFetcherManager(self._make)
        self.partition = Partition(memory_store().create(), follower_of(2), lambda partition: None)
        self.replication.note_role(self.partition)

    def _make(self, leader_id: int) -> RecordedFetcher:
        assert leader_id not in self.fetchers
        return self.fetchers.setdefault(leader_id, RecordedFetcher())

    def assume(self, role: Role) -> None:
        self.partition.assume(role, 0)
        self.replication.note_role(self.partition)

    @property
    def leaders(self) -> list[int]:
        """The leaders from which the partition is copied."""
        return [key for key, each in self.fetchers.items() if self.partition in each.partitions]


def follower_of(leader_id: int, epoch: int = 3) -> Role:
    return Role(epoch, leader_id, is_leader=False, isr=(leader_id,))


def test_a_partition_is_copied_from_its_present_leader() -> None:
    followed = Followed()
    assert followed.leaders == [2]
    followed.assume(follower_of(3, 4))
    assert followed.leaders == [3]
    followed.assume(follower_of(2, 5))
    assert followed.leaders == [2]


def test_a_leader_and_a_replica_without_a_leader_copy_nothing() -> None:
    followed = Followed()
    followed.assume(Role(4, 1, is_leader=True, isr=(1,)))
    assert followed.leaders == []
    followed.assume(follower_of(-1, 5))
    assert followed.leaders == []
    followed.assume(follower_of(2, 6))
    assert followed.leaders == [2]


def test_a_deleted_partition_is_not_copied() -> None:
    followed = Followed()
    followed.partition.retire()
    followed.replication.note_role(followed.partition)
    assert followed.leaders == []


def test_nothing_is_copied_after_the_stop() -> None:
    followed = Followed()
    followed.replication.stop()
    assert followed.fetchers[2].is_stopped
    followed.assume(follower_of(3, 4))
    assert followed.leaders == []
