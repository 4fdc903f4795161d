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
from itertools import count
from typing import Any, NamedTuple, Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import FailingTask, event
from lakelog.coordinator.shard import Now, Reply
from lakelog.coordinator.transaction.endings import Completion, Endings
from lakelog.coordinator.transaction.ids import Decision
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


Decide = Callable[[int, Callable[[Any, Now], Decision], Completion], None]
"""Decides a request to a partition of `__transaction_state`; raises `KafkaError`."""


class MarkerDriver:
    """Writes the markers of each transaction in a task of its own."""

    def __init__(self, writer: MarkerWriter, tasks: Tasks, decide: Decide) -> None:
        self._writer = writer
        self._tasks = tasks
        self._decide = decide
        self._running: dict[str, Reply[None]] = {}
        self._held: list[_Job] | None = None
        self._decisions = count()
        self._failing = FailingTask(logger, "the end of a transaction")

    def hold(self) -> None:
        """Delay transactions that begin from now on until `release`."""
        self._held = []

    def release(self) -> None:
        """Start the delayed transactions that are still in the same state."""
        held, self._held = self._held or [], None
        for job in held:
            if job.shard.is_ending(job.transactional_id, job.ending):
                self._start(job)

    def begin(self, shard: Endings, transactional_id: str, ending: Transaction) -> None:
        """Write the markers of `ending`, which is in a Prepare state, and complete it.

        The task ends by itself when `ending` is no longer the state of its transactional id.
        """
        job = _Job(shard, transactional_id, ending, next(self._decisions))
        # At a start, hanging transactions are found in the logs first. A marker written in the
        # meantime could end a transaction that is about to be fenced.
        if self._held is not None:
            self._held.append(job)
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
        pause_s = _RETRY_FIRST_S
        left = job.ending.partitions
        if before is not None and not before.done():
            await self._end_of(before)
            left = job.shard.unmarked(job.transactional_id, job.ending)
        while left:
            unmarked = await self._write(job, sorted(left))
            if unmarked is None:
                return
            if left := unmarked:
                await pause(self._tasks, pause_s)
                pause_s = min(pause_s * 2, _RETRY_LONGEST_S)
                left = job.shard.unmarked(job.transactional_id, job.ending)
        while job.shard.is_ending(job.transactional_id, job.ending):
            done = self._tasks.future()
            request = Completion(
                future=done, key=job.transactional_id, endings=job.shard, ending=job.ending
            )
            try:
                self._decide(job.shard.partition, request.decide, request)
                if await done:
                    break
            except KafkaError:
                pass  # the shard is being loaded again
            except Exception as bug:  # noqa: BLE001 - the transaction would never end
                self._failing.failed(bug)
            # Also before the task ends: a shard that is reloaded after each failure must not
            # complete its transactions without a pause.
            await pause(self._tasks, pause_s)
        if self._failing.is_failing:
            self._failing.succeeded()

    async def _end_of(self, before: Reply[None]) -> None:
        """Wait for the end of a predecessor.

        The task of a dropped shard may have markers in flight. They must not reach a partition
        after the markers of its successor.
        """
        ended = self._tasks.future()
        before.add_done_callback(lambda _: ended.set_result(None))
        await ended

    async def _write(
        self, job: _Job, left: Sequence[TopicPartition]
    ) -> frozenset[TopicPartition] | None:
        """Write markers once; return the partitions that still need one.

        Returns None if another coordinator has taken over.
        """
        try:
            codes = await self._writer.write([job.marker(key) for key in left])
        except (KafkaError, OSError) as error:
            logger.warning(
                "cannot write the markers of %s, retrying: %s",
                job.transactional_id,
                error,
                extra=event("txn_markers_failed", transactional_id=job.transactional_id),
            )
            return frozenset(left)
        except Exception as bug:  # noqa: BLE001 - the transaction would never end
            self._failing.failed(bug)
            return frozenset(left)
        assert len(codes) == len(left), "each marker has an outcome"
        failed = set(codes) - _SETTLED
        # Per partition: an unreachable leader delays the end of its transaction, but the other
        # partitions must not get their markers again and again.
        if failed:
            left = [key for key, code in zip(left, codes, strict=True) if code in _SETTLED]
        unmarked = job.shard.marked(job.transactional_id, job.ending, left)
        # The partition has a marker of a later coordinator epoch. The later coordinator has the
        # same decision in its log and completes it.
        if ErrorCode.TRANSACTION_COORDINATOR_FENCED in failed:
            logger.error(
                "markers of %s: another coordinator has taken over",
                job.transactional_id,
                extra=event("txn_markers_fenced", transactional_id=job.transactional_id),
            )
            return None
        if failed:
            logger.warning(
                "cannot write all markers of %s, retrying: %s",
                job.transactional_id,
                ", ".join(sorted(code.name for code in failed)),
                extra=event("txn_markers_failed", transactional_id=job.transactional_id),
            )
        return unmarked


class _Job(NamedTuple):
    shard: Endings
    transactional_id: str
    ending: Transaction
    decision: int

    def marker(self, key: TopicPartition) -> Marker:
        assert self.ending.state.is_ending, "the outcome is not decided"
        return Marker(
            *key,
            producer_id=self.ending.producer_id,
            producer_epoch=self.ending.producer_epoch,
            commit=self.ending.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self.shard.coordinator_epoch,
            transaction_version=self.ending.client_version,
            decision=self.decision,
        )
