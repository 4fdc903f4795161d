"""How the transactions of a shard end: the decision, a marker in each partition, completion.

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
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import FailingTask, event
from lakelog.coordinator.requests import ClientRequest
from lakelog.coordinator.shard import LATER, Effect, Now, Reply, Result
from lakelog.coordinator.transaction.ids import Decision, Fences, TransactionalIds
from lakelog.coordinator.transaction.state import TopicPartition, Transaction, TransactionState
from lakelog.coordinator.transaction.transitions import completed, fenced, fenced_beyond
from lakelog.records.control import NO_DECISION
from lakelog.runtime.api import Tasks, pause

logger = logging.getLogger(__name__)


class Endings(Effect):
    """The transactions of a shard that are in a Prepare state; an effect of every step.

    The set of partitions that have their marker is soft state: markers may be repeated.
    """

    def __init__(
        self,
        partition: int,
        coordinator_epoch: int,
        ids: TransactionalIds,
        on_ending: Callable[[Endings, str, Transaction], None],
        fences: Fences,
    ) -> None:
        """
        on_ending: begins to write a transaction's markers.
        coordinator_epoch: the leader epoch in which the shard was loaded. It is in all markers and
            fences earlier coordinators. A shard never takes a later one, because the coordinator
            in that epoch may have decided otherwise.
        """
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self._ids = ids
        self._on_ending = on_ending
        self._fences = fences
        self._marked: dict[str, set[TopicPartition]] = {}
        self.is_unloaded = False

    def write_markers(self, transactional_id: str, now: Now) -> Decision:
        """Begin to write the markers; a transaction without partitions needs none."""
        ending = self._ids.transactions[transactional_id]
        assert ending.state.is_ending, "the outcome is not decided"
        # Also after a restart in the Prepare state: which markers were written is not in the log,
        # and a repeated marker is harmless (KAFKA-19999).
        self._marked[transactional_id] = set()
        if not ending.partitions:
            return self.complete(now, transactional_id, ending)
        self._on_ending(self, transactional_id, ending)
        return Result()

    def is_ending(self, transactional_id: str, ending: Transaction) -> bool:
        """Return whether `ending` is still the state of the transactional id."""
        return not self.is_unloaded and self._ids.transactions.get(transactional_id) is ending

    def unmarked(self, transactional_id: str, ending: Transaction) -> frozenset[TopicPartition]:
        """Return the partitions without a marker; none if `ending` is no longer the state."""
        if not self.is_ending(transactional_id, ending):
            return frozenset()
        return ending.partitions - self._marked[transactional_id]

    def marked(
        self, transactional_id: str, ending: Transaction, partitions: Iterable[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Note that these partitions have their marker; return the others, as `unmarked`."""
        if self.is_ending(transactional_id, ending):
            marked = self._marked[transactional_id]
            marked.update(partitions)
            assert marked <= ending.partitions, "a marker of another transaction"
        return self.unmarked(transactional_id, ending)

    def marked_partitions(self, transactional_id: str) -> set[TopicPartition]:
        """Return the partitions that have their marker."""
        return self._marked.get(transactional_id, set())

    def complete(self, now: Now, transactional_id: str, ending: Transaction) -> Decision:
        """Write the Complete state; call with every partition marked.

        The reply is CONCURRENT_TRANSACTIONS if another step is being written or a fence is pending.
        """
        if not self.is_ending(transactional_id, ending):
            return Result(reply=ErrorCode.NONE)
        # The Complete record drops the partitions. Without its marker a partition would keep the
        # transaction open, and no coordinator would know of it any more.
        assert ending.partitions <= self._marked[transactional_id], "a partition has no marker"
        commits = ending.state is TransactionState.PREPARE_COMMIT
        # The Complete record must not overtake another record of this transactional id: its replay
        # would restore the older state.
        if transactional_id in self._ids.pending or not (
            commits or self._ids.is_complete(transactional_id)
        ):
            # `fence` adds partitions and writes the markers of all.
            return Result(reply=ErrorCode.CONCURRENT_TRANSACTIONS)
        step = completed(ending, now.wall_ms)
        return self._ids.step(now, transactional_id, step, ErrorCode.NONE)

    def abort(self, now: Now, transactional_id: str, current: Transaction) -> Decision:
        """Abort an ongoing transaction past the epoch of its producer."""
        # The epoch rises with the decision to abort. Otherwise the producer, which has only paused,
        # could add records to the transaction between the decision and the markers (KIP-98).
        return self._ids.step(now, transactional_id, fenced(current, now.wall_ms))

    def fence(self, now: Now, transactional_id: str) -> Decision:
        """Abort the hanging transactions of a transactional id past all epochs of its producer.

        A failed fence is retried until it is written. A commit that has been decided is completed
        first: its epoch identifies its records, even after another restart.
        """
        fence = self._fences[transactional_id]
        current = self._ids.transactions[transactional_id]
        # The commit was promised to the client. Its markers come first, then the fence of later
        # transactions.
        if current.state is TransactionState.PREPARE_COMMIT:
            return Result() if current.partitions else self.write_markers(transactional_id, now)
        step = fenced_beyond(current, fence.partitions, fence.epoch, now.wall_ms)
        return self._ids.step(now, transactional_id, step)

    def committed(self, now: Now, result: Decision) -> list[Decision]:
        """Begin the markers of each committed Prepare state, or the fence after a Complete state.

        The state alone decides, so a shard that is loaded continues in the same way.
        """
        further: list[Decision] = []
        for name, step in result.records:
            if step is None:
                continue
            if step.state.is_ending:
                if name in self._fences and not self._ids.has_pending_fence(name):
                    del self._fences[name]
                if (decision := self.write_markers(name, now)).records:
                    further.append(decision)
            elif step.state.has_ended:
                # Only after the commit: a failed Complete record is written again, and must find
                # every partition marked.
                self._marked.pop(name, None)
                if name in self._fences and self._ids.has_pending_fence(name):
                    further.append(self.fence(now, name))
        return further

    def failed(self, now: Now, result: Decision, code: ErrorCode) -> None:
        """Retry the steps that neither a client nor the marker writer retries."""
        for record in result.records:
            self._ids.forget(now, record)
            name, step = record
            if step is None:
                continue
            # Without partitions there is no marker writer.
            if step.state.has_ended:
                if not self._ids.transactions[name].partitions:
                    self._ids.try_again(now, name)
            # An abort or a fence that no client has requested.
            elif step.state.is_ending and result.reply is LATER:
                if self._ids.has_pending_fence(name):
                    self.fence_later(now, name)
                else:
                    self._ids.try_again(now, name)

    def fence_later(self, now: Now, transactional_id: str) -> None:
        """Retry the fence after its next pause."""
        pause_ms = self._fences[transactional_id].next_pause_ms()
        self._ids.try_again(now, transactional_id, pause_ms)


@dataclass(slots=True, kw_only=True, eq=False)
class Completion(ClientRequest):
    """The marker writer's request to complete a transaction; see `Endings.complete`.

    future: gets whether the transaction needs no further attempt.
    """

    endings: Endings
    ending: Transaction

    def decide(self, shard: object, now: Now) -> Decision:
        return self.endings.complete(now, self.key, self.ending)

    def answer(self, reply: ErrorCode) -> None:
        if not self.future.done():  # the marker writer may have been stopped
            self.future.set_result(reply is ErrorCode.NONE)


class FenceId(ClientRequest):
    """A request to fence a transactional id after a start; see `Endings.fence`.

    Nothing waits for it: a fence that cannot be written now is retried.
    """

    __slots__ = ()

    def decide(self, shard: Any, now: Now) -> Decision:
        decision: Decision = shard.endings.fence(now, self.key)
        return decision

    def answer(self, reply: object) -> None:
        """Do nothing. A shard that cannot decide now fences the id when it is loaded."""


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
