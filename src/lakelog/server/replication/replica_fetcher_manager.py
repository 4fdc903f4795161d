"""The partitions that this broker follows, each copied from its leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lakelog.replica.partition import Partition


class PartitionFetcher(Protocol):
    """Copies partitions from one leader; a `ReplicaFetcher`."""

    def add(self, partition: Partition) -> None: ...

    def remove(self, partition: Partition) -> None: ...

    def stop(self) -> None: ...


class ReplicaFetcherManager:
    """One fetcher for each leader that this broker follows.

    Args:
        make_fetcher: returns a new fetcher from the leader with a node id.
    """

    def __init__(self, make_fetcher: Callable[[int], PartitionFetcher]) -> None:
        self._make_fetcher = make_fetcher
        self._fetchers: dict[int, PartitionFetcher] = {}
        self._by_partition: dict[Partition, PartitionFetcher] = {}
        self._stopped = False

    def note_role(self, partition: Partition) -> None:
        """Follow a change of the partition's role; a retired partition has none."""
        fetcher = self._by_partition.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)
        role = partition.role
        is_copied = partition.is_online and partition.failed_in is None
        if self._stopped or role.is_leader or role.leader_id < 0 or not is_copied:
            return
        fetcher = self._fetchers.get(role.leader_id)
        if fetcher is None:
            fetcher = self._fetchers[role.leader_id] = self._make_fetcher(role.leader_id)
        self._by_partition[partition] = fetcher
        fetcher.add(partition)

    def stop(self) -> None:
        """Copy nothing any more."""
        self._stopped = True
        for fetcher in self._fetchers.values():
            fetcher.stop()
