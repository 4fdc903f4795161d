"""Waits until what was appended is committed: with `durability=fsync`, until it is durable.

All that waits for a partition shares its next flush: what is appended while one is under way is
made durable by the one after it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.partition import Partition
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.api import Tasks


class Appended(NamedTuple):
    """What has to be committed: everything in the partition before `end_offset`."""

    partition: Partition
    end_offset: int

    @property
    def is_settled(self) -> bool:
        """Whether it is, or never will be from here."""
        partition = self.partition
        return partition.watermark.offset >= self.end_offset or not partition.is_online

    def check(self) -> None:
        """Raises `KafkaError` if it is not: why it never will be, or that it is not yet."""
        if self.partition.watermark.offset < self.end_offset:
            self.partition.check_online()
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it is written, and not yet durable")


class Acknowledgement:
    """A `Wait` for several appends.

    Args:
        settled: called once nothing is left to wait for, or at the deadline.
        failed: called with what `settled` raised, a bug of whoever waits: others go on.
    """

    __slots__ = ("_appended", "_failed", "_settled")

    def __init__(
        self,
        appended: Sequence[Appended],
        settled: Callable[[], object],
        failed: Callable[[Exception], object],
    ) -> None:
        self._appended = appended
        self._settled = settled
        self._failed = failed

    def try_complete(self) -> bool:
        if not all(one.is_settled for one in self._appended):
            return False
        self._settled()
        return True

    def expire(self) -> None:
        self._settled()

    def fail(self, error: Exception) -> None:
        self._failed(error)


async def committed(appended: Appended, purgatory: Purgatory, tasks: Tasks) -> None:
    """Returns when it is; raises `KafkaError` if the partition fails or goes before that."""
    if not appended.is_settled:
        done: asyncio.Future[None] = tasks.future()
        wait = Acknowledgement([appended], lambda: _wake(done), done.set_exception)
        parked = purgatory.park(wait, [appended.partition.key], math.inf)
        try:
            await done
        finally:
            purgatory.cancel(parked)
    appended.check()


def _wake(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
