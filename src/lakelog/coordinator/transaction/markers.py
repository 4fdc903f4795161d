"""Tells the partitions of a transaction how it ended, until all of them know.

The decision is in the log before the first marker is written, so markers may be repeated: after a
failure, by the next coordinator after a restart. A partition that is gone needs none. Only when
each has its marker is the transaction complete, and only then may the next one begin.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import event
from lakelog.coordinator.shard import Reply
from lakelog.coordinator.transaction.state import (
    TopicPartition,
    Transaction,
    TransactionState,
)
from lakelog.runtime.api import Tasks

logger = logging.getLogger(__name__)

_RETRY_FIRST_S = 0.05
_RETRY_LONGEST_S = 1.0

_SETTLED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""The partition has the marker, is gone, or has since heard from a newer epoch: a newer epoch is
only given out when nothing of the older one is open."""


class Marker(NamedTuple):
    """What one partition is told."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int
    """The level of `transaction.version` that the client speaks."""


class MarkerWriter(Protocol):
    """How a transaction coordinator reaches partitions, and group coordinators as one of them."""

    def write(self, markers: Sequence[Marker]) -> Awaitable[Sequence[ErrorCode]]:
        """Writes each marker to its partition; one code for each, in their order.

        With a code other than NONE, or if this raises `KafkaError` or `OSError`, the marker may
        have been written all the same; but then it is in the log when this returns: it cannot turn
        up later.
        """
        ...


class EndingTransactions(Protocol):
    """The shard that a transaction belongs to."""

    @property
    def partition(self) -> int:
        """That of `__transaction_state`."""
        ...

    def is_ending(self, transactional_id: str, ending: Transaction) -> bool:
        """Whether it is still this end that its partitions have to be told."""
        ...

    def unmarked(self, transactional_id: str, ending: Transaction) -> frozenset[TopicPartition]:
        """Its partitions without a marker; none if this end is no longer to be told."""
        ...

    def marked(
        self, transactional_id: str, ending: Transaction, partitions: Sequence[TopicPartition]
    ) -> None: ...


Complete = Callable[[int, str, Transaction], Awaitable[bool]]
"""Writes down that a transaction is complete, by its partition of `__transaction_state` and its
transactional id; false if that is to be tried again."""


class MarkerDriver:
    """Writes the markers of transactions, each in a task of its own."""

    def __init__(self, writer: MarkerWriter, tasks: Tasks) -> None:
        self._writer = writer
        self._tasks = tasks
        self._running: dict[str, Reply[None]] = {}
        self._held: list[Callable[[], None]] | None = None

    def hold(self) -> None:
        """What is begun from now on waits for `release`."""
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for begin in held:
            begin()

    def begin(
        self,
        shard: EndingTransactions,
        transactional_id: str,
        ending: Transaction,
        coordinator_epoch: int,
        complete: Complete,
    ) -> None:
        """`ending` is in a Prepare state. Ends by itself when the shard no longer has it."""
        job = _Job(shard, transactional_id, ending, coordinator_epoch, complete)
        if self._held is not None:
            self._held.append(partial(self._start, job))
        else:
            self._start(job)

    def _start(self, job: _Job) -> None:
        before = self._running.get(job.transactional_id)
        name = f"markers of {job.transactional_id}"
        task = self._tasks.spawn(self._run(job, before), name=name)
        self._running[job.transactional_id] = task
        task.add_done_callback(lambda done: self._forget(job.transactional_id, done))

    def _forget(self, transactional_id: str, done: Reply[None]) -> None:
        if self._running.get(transactional_id) is done:
            del self._running[transactional_id]

    async def _run(self, job: _Job, before: Reply[None] | None) -> None:
        if before is not None and not before.done():
            # Of a shard that was dropped: what it has under way must not come after what follows.
            ended = self._tasks.future()
            before.add_done_callback(lambda _: ended.set_result(None))
            await ended
        pause_s = _RETRY_FIRST_S
        left = job.unmarked()
        while left:
            if not await self._write(job, left):
                return
            left = job.unmarked()
            if left:
                await self._sleep(pause_s)
                pause_s = min(pause_s * 2, _RETRY_LONGEST_S)
                left = job.unmarked()
        while job.is_wanted() and not await job.completed():
            await self._sleep(pause_s)

    async def _write(self, job: _Job, left: Sequence[TopicPartition]) -> bool:
        """Whether to go on."""
        try:
            codes = await self._writer.write([job.marker(key) for key in left])
        except (KafkaError, OSError) as error:
            logger.warning(
                "markers of %s: %s",
                job.transactional_id,
                error,
                extra=event("txn_markers_failed", transactional_id=job.transactional_id),
            )
            return True
        told = [key for key, code in zip(left, codes, strict=True) if code in _SETTLED]
        job.shard.marked(job.transactional_id, job.ending, told)
        failed = {code.name for code in codes if code not in _SETTLED}
        if ErrorCode.TRANSACTION_COORDINATOR_FENCED.name in failed:
            logger.error(
                "markers of %s: another coordinator has taken over",
                job.transactional_id,
                extra=event("txn_markers_fenced", transactional_id=job.transactional_id),
            )
            return False
        if failed:
            logger.warning(
                "markers of %s: %s",
                job.transactional_id,
                ", ".join(sorted(failed)),
                extra=event("txn_markers_failed", transactional_id=job.transactional_id),
            )
        return True

    async def _sleep(self, pause_s: float) -> None:
        turn = self._tasks.future()
        self._tasks.call_later(pause_s, turn.set_result, None)
        await turn


class _Job(NamedTuple):
    shard: EndingTransactions
    transactional_id: str
    ending: Transaction
    coordinator_epoch: int
    complete: Complete

    def unmarked(self) -> list[TopicPartition]:
        return sorted(self.shard.unmarked(self.transactional_id, self.ending))

    def is_wanted(self) -> bool:
        return self.shard.is_ending(self.transactional_id, self.ending)

    def completed(self) -> Awaitable[bool]:
        return self.complete(self.shard.partition, self.transactional_id, self.ending)

    def marker(self, key: TopicPartition) -> Marker:
        return Marker(
            *key,
            producer_id=self.ending.producer_id,
            producer_epoch=self.ending.producer_epoch,
            commit=self.ending.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=self.ending.client_version,
        )
