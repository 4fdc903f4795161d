"""Writes the markers of a transaction to its partitions, and retries until each has one.

The decision is committed before the first marker is written, so markers may be repeated: after a
failure, or by the next coordinator after a restart. A deleted partition needs none. The transaction
is complete when each partition has its marker; only then may the next transaction begin.

A request whose connection is given up may arrive after the marker was sent again, and after the
producer's next transaction has begun, in the same epoch before transaction version 2. Therefore
each decision has a number, which rises while the process runs. A leader epoch of
`__transaction_state` belongs to one process, so coordinator epoch and number together rise with
every decision about a producer. A partition does not let a marker that is not above the last one
end a transaction (docs/adr/0011).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import event
from lakelog.base.failing_task import FailingTask
from lakelog.coordinator.shard import Reply
from lakelog.coordinator.transaction.state import TopicPartition, Transaction, TransactionState
from lakelog.records.control import NO_DECISION
from lakelog.runtime.api import Tasks, pause

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
"""The partition has the marker, is deleted, or has records of a newer epoch. A producer gets a
newer epoch only when no transaction of the older one is open."""


class Marker(NamedTuple):
    """The outcome of a transaction for one partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int
    """Level of the feature `transaction.version` that the client uses."""
    decision: int = NO_DECISION
    """Number of the decision in its coordinator epoch; none for a marker of an administrator."""


class MarkerWriter(Protocol):
    """The transaction coordinator's access to partitions, also of group coordinators."""

    def write(self, markers: Sequence[Marker]) -> Awaitable[Sequence[ErrorCode]]:
        """Write each marker to its partition; return one code for each, in their order.

        UNKNOWN_TOPIC_OR_PARTITION means that this broker's metadata has no such partition. After
        any other code except NONE, `KafkaError` or `OSError`, the marker may be in the log. On this
        broker it is there when this returns. On another one it may appear later, as in Kafka.
        """
        ...


class EndingTransactions(Protocol):
    """The ending transactions of a shard."""

    @property
    def partition(self) -> int:
        """The shard's partition of `__transaction_state`."""
        ...

    @property
    def coordinator_epoch(self) -> int:
        """The leader epoch in which the shard was loaded."""
        ...

    def is_ending(self, transactional_id: str, ending: Transaction) -> bool:
        """Return whether this end of the transaction still needs markers or completion."""
        ...

    def unmarked(self, transactional_id: str, ending: Transaction) -> frozenset[TopicPartition]:
        """Return the partitions without a marker; none if they are no longer needed."""
        ...

    def marked(
        self, transactional_id: str, ending: Transaction, partitions: Sequence[TopicPartition]
    ) -> None:
        """Note that these partitions have their marker."""
        ...


Complete = Callable[[int, str, Transaction], Awaitable[bool]]
"""Writes the Complete state of a transaction, given its partition of `__transaction_state` and its
transactional id; returns false if the caller has to retry."""


class MarkerDriver:
    """Writes the markers of each transaction in a task of its own."""

    def __init__(self, writer: MarkerWriter, tasks: Tasks) -> None:
        self._writer = writer
        self._tasks = tasks
        self._running: dict[str, Reply[None]] = {}
        self._held: list[Callable[[], None]] | None = None
        self._decisions = count()
        self._failing = FailingTask(logger, "the end of a transaction")

    def hold(self) -> None:
        """Delay transactions that begin from now on until `release`."""
        self._held = []

    def release(self) -> None:
        """Start the delayed transactions."""
        held, self._held = self._held or [], None
        for begin in held:
            begin()

    def begin(
        self,
        shard: EndingTransactions,
        transactional_id: str,
        ending: Transaction,
        complete: Complete,
    ) -> None:
        """Write the markers of `ending`, which is in a Prepare state, and complete it.

        The task ends by itself when `ending` is no longer the state of its transactional id.
        """
        job = _Job(shard, transactional_id, ending, complete, next(self._decisions))
        # At a start, hanging transactions are found in the logs first. A marker written in the
        # meantime could end a transaction that is about to be fenced.
        if self._held is not None:
            self._held.append(partial(self._start, job))
        else:
            self._start(job)

    def _start(self, job: _Job) -> None:
        before = self._running.get(job.transactional_id)
        name = f"markers of {job.transactional_id}"
        task = self._tasks.spawn(self._run(job, before), name=name)
        # The newest task per id: it waits for its predecessor, which waits for its own, so their
        # markers are in the order of the transactions.
        self._running[job.transactional_id] = task
        task.add_done_callback(lambda done: self._forget(job.transactional_id, done))

    def _forget(self, transactional_id: str, done: Reply[None]) -> None:
        if self._running.get(transactional_id) is done:
            del self._running[transactional_id]

    async def _run(self, job: _Job, before: Reply[None] | None) -> None:
        if before is not None and not before.done():
            # The task of a dropped shard may have markers in flight. They must not reach a
            # partition after the markers of this task.
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
                await pause(self._tasks, pause_s)
                pause_s = min(pause_s * 2, _RETRY_LONGEST_S)
                left = job.unmarked()
        while job.is_wanted():
            try:
                if await job.completed():
                    break
            except Exception as bug:  # noqa: BLE001 - the transaction would never end
                self._failing.failed(bug)
            await pause(self._tasks, pause_s)
        if self._failing.is_failing:
            self._failing.succeeded()

    async def _write(self, job: _Job, left: Sequence[TopicPartition]) -> bool:
        """Write markers once; return false if another coordinator has taken over."""
        try:
            codes = await self._writer.write([job.marker(key) for key in left])
        except (KafkaError, OSError) as error:
            logger.warning(
                "cannot write the markers of %s, retrying: %s",
                job.transactional_id,
                error,
                extra=event("txn_markers_failed", transactional_id=job.transactional_id),
            )
            return True
        except Exception as bug:  # noqa: BLE001 - the transaction would never end
            self._failing.failed(bug)
            return True
        # Per partition: an unreachable leader delays the end of its transaction, but the other
        # partitions must not get their markers again and again.
        settled = [key for key, code in zip(left, codes, strict=True) if code in _SETTLED]
        job.shard.marked(job.transactional_id, job.ending, settled)
        failed = {code.name for code in codes if code not in _SETTLED}
        # The partition has a marker of a later coordinator epoch. The later coordinator has the
        # same decision in its log and completes it.
        if ErrorCode.TRANSACTION_COORDINATOR_FENCED.name in failed:
            logger.error(
                "markers of %s: another coordinator has taken over",
                job.transactional_id,
                extra=event("txn_markers_fenced", transactional_id=job.transactional_id),
            )
            return False
        if failed:
            logger.warning(
                "cannot write all markers of %s, retrying: %s",
                job.transactional_id,
                ", ".join(sorted(failed)),
                extra=event("txn_markers_failed", transactional_id=job.transactional_id),
            )
        return True


class _Job(NamedTuple):
    shard: EndingTransactions
    transactional_id: str
    ending: Transaction
    complete: Complete
    decision: int

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
            coordinator_epoch=self.shard.coordinator_epoch,
            transaction_version=self.ending.client_version,
            decision=self.decision,
        )
