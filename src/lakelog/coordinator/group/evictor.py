"""Chooses which groups to evict when there is no room for new ones, in all partitions together."""

from __future__ import annotations

from functools import partial

from lakelog.coordinator.group.offsets.table import in_order_of_eviction
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.host import ShardHost
from lakelog.coordinator.shard import Now

_PAUSE_MS = 1000
"""After a search that found nothing to evict: each search looks at every newcomer."""


class Evictor:
    """Searches the groups of all loaded partitions."""

    def __init__(self, host: ShardHost[GroupShard]) -> None:
        self._host = host
        self._next_search_ms = 0

    def evict(self, keep: str, groups: int, size: int) -> None:
        """Begin to delete newcomers, if possible as many as wanted.

        A group is chosen while either number is not reached. After a search without a result the
        next one is 1 s later.

        Args:
            keep: id of the group that the room is for.
            groups: number of groups to delete.
            size: estimated bytes of memory to free.
        """
        now = self._host.now()
        if now.tick_ms < self._next_search_ms:
            return
        shards = self._host.active_shards()
        newcomers = [newcomer for shard in shards for newcomer in shard.state.newcomers()]
        chosen = 0
        for _, group_id in in_order_of_eviction(newcomers, now.wall_ms):
            if chosen >= groups and size <= 0:
                break
            partition = self._host.partition_for(group_id)
            state = self._host.shard(partition).state
            if group_id != keep and state.is_deserted(group_id):
                chosen += 1
                size -= state.account.of(group_id)
                self._host.decide(partition, partial(_evict, group_id))
        if not chosen:
            self._next_search_ms = now.tick_ms + _PAUSE_MS


def _evict(group_id: str, shard: GroupShard, now: Now) -> Decision:
    return shard.evictions.evict(now, group_id)
