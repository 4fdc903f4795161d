"""Hands partitions over to their preferred replicas, without a loss of acknowledged records.

A replica joins the ISR at the high watermark. Beyond it are records that the leader alone has
acknowledged (`acks=1`), and a replica that took over there would cut them off. So the leader
rejects further ones for a moment, waits until the preferred replica has the present end of the log,
and then asks the controller to have it lead (`auto.leader.rebalance.enable`).
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from lakelog.replica.partition import Partition
from lakelog.runtime.api import Clock, Tasks, Timer, pause

_NEAR_MS = 500
"""A replica that was caught up so shortly ago reaches the end of the log at once."""
_REACH_S = 0.2
"""For which records are rejected until the replica has reached the end."""
_LOOK_S = 0.005
_HOLD_S_MAX = 1.0
"""For which records are rejected until the controller answers."""
_AGAIN_MS = 5000
"""Between two attempts to hand a partition over."""


class HandOvers:
    """The partitions that a leader is handing over.

    Args:
        is_enabled: `auto.leader.rebalance.enable`.
    """

    def __init__(self, node_id: int, clock: Clock, tasks: Tasks, *, is_enabled: bool) -> None:
        self._node_id = node_id
        self._clock = clock
        self._tasks = tasks
        self._is_enabled = is_enabled
        self._not_before_ms: dict[Partition, int] = {}
        self._declined: set[Partition] = set()
        """Partitions that the controller leaves to this leader."""
        self._ends: dict[Partition, int] = {}
        """The held partitions, and the offset that each preferred replica has to reach."""
        self._limit: Timer | None = None

    def forget(self, partition: Partition) -> None:
        """Forget earlier attempts: the partition has another role."""
        self._not_before_ms.pop(partition, None)
        self._declined.discard(partition)

    def awaits(self, partition: Partition, isr: Sequence[int], alive: Container[int]) -> bool:
        """Return whether the partition is to be handed over once its preferred replica is near.

        alive: the brokers that are not fenced.
        """
        preferred = partition.role.preferred
        return (
            self._is_enabled
            and preferred not in (-1, self._node_id)
            and preferred in isr
            and preferred in alive
            and partition not in self._declined
        )

    def is_due(
        self, partition: Partition, isr: Sequence[int], alive: Container[int], now_ms: int
    ) -> bool:
        """Return whether the preferred replica can reach the end of the log at once."""
        if not self.awaits(partition, isr, alive):
            return False
        if now_ms < self._not_before_ms.get(partition, now_ms):
            return False
        follower = partition.followers.get(partition.role.preferred)
        if follower is None:
            return False
        has_all = follower.end_offset >= partition.log.log_end_offset
        return has_all or now_ms - follower.caught_up_ms <= _NEAR_MS

    def begin(self, partitions: Sequence[Partition]) -> None:
        """Reject records that would be acknowledged here alone, from now on until `end`."""
        assert not self._ends, "one request at a time"
        again_ms = self._clock.monotonic_ms() + _AGAIN_MS
        for partition in partitions:
            partition.hold()
            self._ends[partition] = partition.log.log_end_offset
            self._not_before_ms[partition] = again_ms
        if partitions:
            self._limit = self._tasks.call_later(_HOLD_S_MAX, self.end)

    async def heirs(self) -> dict[Partition, int]:
        """Return the preferred replicas that have reached the ends of the logs, after some time."""
        deadline = self._clock.monotonic() + _REACH_S
        while self._clock.monotonic() < deadline and not all(map(self._has_reached, self._ends)):
            await pause(self._tasks, _LOOK_S)
        return {
            partition: partition.role.preferred
            for partition in self._ends
            if self._has_reached(partition)
        }

    def note_kept(self, partition: Partition) -> None:
        """Note that the controller leaves the partition to this leader."""
        self._declined.add(partition)

    def end(self) -> None:
        """Append all records again, where this broker still leads."""
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.cancel()
        ends, self._ends = self._ends, {}
        for partition in ends:
            partition.release()

    def _has_reached(self, partition: Partition) -> bool:
        follower = partition.followers.get(partition.role.preferred)
        return follower is not None and follower.end_offset >= self._ends[partition]
