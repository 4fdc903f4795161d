"""Waits until appended records are committed: with `durability=fsync`, until they are durable.

All waiting appends of a partition share its next flush. Records appended during a flush become
durable by the next one.
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
    """An append that has to be committed: all of the partition before `end_offset`."""

    partition: Partition
    end_offset: int

    @property
    def is_settled(self) -> bool:
        """Whether the append is committed, or will not be by this broker."""
        partition = self.partition
        return partition.watermark.offset >= self.end_offset or not partition.is_online

    def check(self) -> None:
        """Raise `KafkaError` unless the append is committed.

        The error is that of an offline partition, or REQUEST_TIMED_OUT.
        """
        if self.partition.watermark.offset < self.end_offset:
            self.partition.check_online()
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it is written, and not yet durable")


class Acknowledgement:
    """A `Wait` for several appends.

    Args:
        settled: called once all appends are settled, or at the deadline.
        failed: called with an exception of `settled`, so that other waits are not affected.
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
    """Return when the append is committed.

    Raises `KafkaError` if the partition fails or is deleted before.
    """
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
