"""Deletions of records on their way from the leader of a partition to its followers (KIP-107).

A follower applies the leader's log start offset from a response, and states it in its next fetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.partition import Partition
from lakelog.replica.purgatory import Purgatory
from lakelog.replica.role import NotLeaderError
from lakelog.runtime.api import Clock
from lakelog.server.appends.acknowledgement import Acknowledgement, Appended, Change

_ROUND_S = 1.0
"""Longest time after which a follower that has died meanwhile is no longer waited for."""


class Deletion(NamedTuple):
    """Records below `offset` that the leader has deleted in `leader_epoch`.

    live: returns the node ids of the live brokers.
    """

    partition: Partition
    offset: int
    leader_epoch: int
    live: Callable[[], Container[int]]

    @property
    def commit_offset(self) -> int | None:
        """None: the high watermark does not complete it."""
        return None

    @property
    def is_complete(self) -> bool:
        """Whether the live followers have deleted the records, or will not under this leader."""
        return self._is_followed or not self._is_led

    @property
    def _is_led(self) -> bool:
        return self.partition.serves and self.partition.leader_epoch == self.leader_epoch

    @property
    def _is_followed(self) -> bool:
        return self.partition.low_watermark(self.live()) >= self.offset

    def check(self) -> None:
        """Raise `KafkaError` unless all live replicas have deleted the records.

        The error is that of an offline partition, `NotLeaderError` after a change of the leader
        epoch, or REQUEST_TIMED_OUT.
        """
        partition = self.partition
        if partition.leader_epoch != self.leader_epoch:
            raise NotLeaderError(partition.role.leader_id, partition.leader_epoch)
        partition.check_leader()
        if not self._is_followed:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "the leader has deleted the records; followers delete them when they fetch",
            )


def beginning(partition: Partition) -> Appended:
    """Return the change by which a new leader knows what its predecessors have committed.

    Until then its high watermark may be below records that were acknowledged.
    """
    return Appended(partition, partition.epoch_start, partition.leader_epoch)


async def completed(
    changes: Sequence[Change], purgatory: Purgatory, clock: Clock, deadline: float
) -> None:
    """Wait until all changes are complete, or until `deadline` (monotonic clock, seconds)."""
    while not all(change.is_complete for change in changes):
        now = clock.monotonic()
        if now >= deadline:
            return
        await _event(changes, purgatory, min(deadline, now + _ROUND_S))


async def _event(changes: Sequence[Change], purgatory: Purgatory, deadline: float) -> None:
    done = asyncio.Event()
    wait = Acknowledgement(changes, done.set, lambda error: done.set())
    parked = wait.park(purgatory, deadline)
    try:
        await done.wait()
    finally:  # a cancelled request must not leave its wait behind
        purgatory.cancel(parked)
