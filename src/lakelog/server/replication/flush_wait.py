"""Waits until copied records are on the device: only then a follower may report them.

With `durability=fsync` the leader acknowledges a record when all in-sync replicas have reported it.
A position that is reported before the flush would acknowledge records that a power failure of all
replicas removes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from lakelog.replica.partition import Partition
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.api import Tasks


def being_flushed(partitions: Iterable[Partition]) -> list[Partition]:
    """Return the partitions whose logs are not as durable as configured yet.

    A log that has failed, or that this broker does not copy any more, is not among them.
    """
    return [partition for partition in partitions if _has_to_wait(partition)]


async def flushed(
    waiting: Sequence[Partition], purgatory: Purgatory, tasks: Tasks, deadline: float
) -> None:
    """Wait until these logs, of `being_flushed`, are as durable as configured, or the deadline.

    deadline: on the monotonic clock, in seconds.
    """
    wait = _FlushWait(waiting, tasks.future())
    keys = dict.fromkeys(partition.key for partition in waiting)
    parked = purgatory.park(wait, keys, deadline)
    try:
        await wait.done
    finally:  # a cancelled task must not leave its wait behind
        purgatory.cancel(parked)


def _has_to_wait(partition: Partition) -> bool:
    return (
        not partition.watermark.is_written and partition.is_online and not partition.role.is_leader
    )


class _FlushWait:
    """A `Wait` of one fetcher for the flushes of some logs."""

    __slots__ = ("_partitions", "done")

    def __init__(self, partitions: Sequence[Partition], done: asyncio.Future[None]) -> None:
        self._partitions = partitions
        self.done = done

    def try_complete(self) -> bool:
        self._partitions = [partition for partition in self._partitions if _has_to_wait(partition)]
        if not self._partitions:
            self.expire()
        return not self._partitions

    def expire(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
