"""A partition that its host serves in one leader epoch: its shard, and the writing of decisions.

A partition has at most one append in flight. Decisions made meanwhile wait and share the next
batch, so a thousand commits need one append. Records are replayed, and replies sent, in the order
of the decisions.

A rejected append is reported to the effects of the decision, and to its request.
A record that cannot be encoded fails before it is queued, so it does not block other decisions.

No other part of a coordinator waits, except for loading; this one does through `Tasks`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

from lakelog.base.errors import ErrorCode, KafkaError, OutOfCapacityError
from lakelog.base.events import event
from lakelog.coordinator.requests import log_bug
from lakelog.coordinator.shard import (
    LATER,
    NOT_APPENDED,
    Now,
    PartitionLog,
    Request,
    Result,
    Shard,
    coordinator_code,
)
from lakelog.records.builder import BatchBuilder
from lakelog.runtime.api import Clock, Tasks, Timer
from lakelog.wire.primitives import WireError

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard[Any])

_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 32
"""Upper bound of a record's size without its key and value."""

Encoded = tuple[bytes, bytes | None]


class Queued(NamedTuple):
    """A decision that waits for the log, and the request that gets its reply."""

    result: Result[Any]
    request: Request[Any] | None
    records: list[Encoded]


class Writing:
    """Parts that the partitions of one host share, to write their decisions.

    Args:
        topic: name of the topic, for log messages.
        batch_bytes_max: decisions share a batch up to this size; a larger decision has a batch of
            its own.
        codec: compression of the batches.
        reload: called if an append may be in the log although it failed.
        provide: begins to meet the need of a request, and then has it decided again.
    """

    __slots__ = (
        "batch_bytes_max",
        "clock",
        "codec",
        "provide",
        "reload",
        "tasks",
        "topic",
        "writers",
    )

    def __init__(
        self,
        topic: str,
        clock: Clock,
        tasks: Tasks,
        batch_bytes_max: int,
        codec: int,
        reload: Callable[[ShardContext[Any]], None],
        provide: Callable[[Any, Any], None],
    ) -> None:
        self.topic = topic
        self.clock = clock
        self.tasks = tasks
        self.batch_bytes_max = batch_bytes_max
        self.codec = codec
        self.reload = reload
        self.provide = provide
        self.writers: dict[int, Any] = {}
        """Running tasks by partition, also of partitions that are no longer served."""

    def now(self) -> Now:
        """Read both clocks."""
        return Now(self.clock.wall_ms(), self.clock.monotonic_ms())


class ShardContext(Generic[S]):
    """One partition in one leader epoch: its shard, and the decisions that wait for the log."""

    __slots__ = (
        "_is_writing",
        "_log_fields",
        "_timer",
        "_timer_ms",
        "_writing",
        "active",
        "dropped",
        "leader_epoch",
        "log",
        "offset_last",
        "partition",
        "queue",
        "shard",
    )

    def __init__(
        self, partition: int, leader_epoch: int, log: PartitionLog, shard: S, writing: Writing
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.log = log
        self.shard = shard
        self._writing = writing
        self._log_fields: dict[str, Any] = {"topic": writing.topic, "partition": partition}
        """Fields of all log lines."""
        self.active = False
        """Whether the log has been replayed to its end, so that requests are decided."""
        self.dropped = False
        self._is_writing = False
        self.offset_last = -1
        """Base offset of the newest append, which a later one exceeds."""
        self.queue: deque[Queued] = deque()
        self._timer: Timer | None = None
        self._timer_ms = inf
        """Time of the timer on the monotonic clock.

        It is never moved back. A deadline that was extended costs one early call, and rebalances
        extend theirs with every member.
        """

    def begin(self) -> None:
        """Begin to serve: the log has been replayed to its end."""
        assert not (self.active or self.dropped), "a shard serves once, after its load"
        self.active = True
        self._follow(self.shard.loaded(self._writing.now()))

    def decide(
        self, decision: Callable[[S, Now], Result[Any]], request: Request[S] | None = None
    ) -> None:
        """Call `decision` with the shard, write its result, and reply to the request."""
        if further := self._run(request, decision, self.shard, self._writing.now()):
            self._follow(further)
        if (deadline := self.shard.deadlines.earliest) is not None and deadline < self._timer_ms:
            self._arm()

    def drop(self, code: ErrorCode) -> None:
        """Stop at once, and answer all waiting requests with `code`."""
        assert not self.dropped, "its requests were answered already"
        self.dropped = True
        self.active = False
        if self._timer is not None:
            self._timer.cancel()
        self.shard.unloaded(code)
        # The queue is emptied before the first effect: an effect may queue another decision, which
        # must fail as well.
        waiting = list(self.queue)
        self.queue.clear()
        self._fail(waiting, code)

    # Writing

    def _follow(self, further: Iterable[Result[Any]] | None) -> None:
        """Queue decisions without a new request, and set the timer for the shard's deadlines."""
        waiting = deque(further or ())
        # A loop, because a chain of decisions without records can be long.
        while waiting:
            result = waiting.popleft()
            further = self._run(None, lambda decided=result: decided)
            waiting.extendleft(reversed(further))
        if (deadline := self.shard.deadlines.earliest) is not None and deadline < self._timer_ms:
            self._arm()

    def _run(
        self, request: Request[S] | None, decide: Callable[..., Result[Any]], *arguments: Any
    ) -> Sequence[Result[Any]]:
        """Queue the decision that `decide` returns; without records it is committed at once.

        Return the further decisions of a decision without records.
        """
        result = decide(*arguments)
        if result.request is not None:
            assert request is None, "a decision has one request"
            request = result.request
        elif result.reply is LATER and result.need is None:
            request = None
        if not result.records and result.marker is None:
            if result.need is not None:
                self._writing.provide(result.need, request)
            elif request is not None:
                request.answer(result.reply)
            return self._committed_at_once(result) if result.effects else ()
        assert result.marker is None or not (result.records or result.producer)
        if self.dropped:
            self._fail([Queued(result, request, [])], ErrorCode.NOT_COORDINATOR)
            return ()
        try:
            # Here and not in the writer: a record that cannot be encoded must fail alone, not with
            # the decisions that share its batch.
            encoded = list(map(self.shard.encode, result.records))
        except WireError as error:
            logger.error(
                "%s-%d: cannot encode a record: %s",
                self._writing.topic,
                self.partition,
                error,
                extra=event("coordinator_record_refused", **self._log_fields),
            )
            self._fail([Queued(result, request, [])], ErrorCode.UNKNOWN_SERVER_ERROR)
            return ()
        except Exception:  # noqa: BLE001 - logged; the request would stay open, its key blocked
            self._log_bug("encoding a record")
            self._fail([Queued(result, request, [])], ErrorCode.UNKNOWN_SERVER_ERROR)
            return ()
        self.queue.append(Queued(result, request, encoded))
        if not self._is_writing:
            # A second writer could append decisions in another order than they are replayed in.
            writing = self._writing
            assert self.partition not in writing.writers
            self._is_writing = True
            name = f"write {writing.topic}-{self.partition}"
            writing.writers[self.partition] = writing.tasks.spawn(self._write(), name=name)
        return ()

    def _committed_at_once(self, result: Result[Any]) -> list[Result[Any]]:
        further: list[Result[Any]] = []
        for effect in result.effects:
            further += effect.committed(self._writing.now(), result) or ()
        return further

    async def _write(self) -> None:
        """Append decisions until the queue is empty; a dropped shard gets no more."""
        try:
            while self.queue:
                batch = self.take_batch(self._writing.batch_bytes_max)
                assert batch, "a decision larger than a batch has one of its own"
                try:
                    await self._commit(batch)
                except Exception:  # noqa: BLE001 - logged; the requests are refused
                    self._log_bug("writing decisions")
                    self._not_committed(batch, ErrorCode.UNKNOWN_SERVER_ERROR)
        finally:
            self._is_writing = False
            del self._writing.writers[self.partition]

    def take_batch(self, batch_bytes_max: int) -> deque[Queued]:
        """Take the decisions of the next append; a transactional decision or a marker is alone."""
        batch: deque[Queued] = deque()
        size = _BATCH_OVERHEAD
        while self.queue:
            head, _, records = self.queue[0]
            is_alone = head.marker is not None or head.producer is not None
            size += sum(len(key) + len(value or b"") + _RECORD_OVERHEAD for key, value in records)
            # A batch is transactional as a whole, so a transactional decision cannot share it; a
            # marker is a control batch.
            if batch and (is_alone or size > batch_bytes_max):
                break
            batch.append(self.queue.popleft())
            if is_alone:
                break
        return batch

    def _batch(self, batch: deque[Queued]) -> bytearray:
        builder = BatchBuilder(self._writing.codec)
        now_ms = self._writing.clock.wall_ms()
        for queued in batch:
            for key, value in queued.records:
                builder.append(now_ms, key, value)
        producer = batch[0].result.producer
        return builder.build(*(producer or ()), is_transactional=producer is not None)

    async def _commit(self, batch: deque[Queued]) -> None:
        """Append, replay and report decisions.

        `batch` keeps the decisions that have not been reported.
        """
        if not await self._append(batch):
            return
        shard = self.shard
        while batch:
            # Replayed before the next one is reported: an effect may decide on the state, which
            # has to include every record before it and none after it.
            result, request, _ = batch[0]
            if result.marker is not None:
                shard.replay_end(result.marker.producer_id, commit=result.marker.commit)
            for record in result.records:
                if result.producer is not None:
                    shard.replay_pending(record, result.producer[0])
                else:
                    shard.replay(record)
            # Not before: after an exception, only the rest is reported as failed.
            batch.popleft()
            if request is not None:
                request.answer(result.reply)
            clock = self._writing.clock
            now = Now(clock.wall_ms(), clock.monotonic_ms())
            for effect in result.effects:
                if further := effect.committed(now, result):
                    self._follow(further)
            if (deadline := shard.deadlines.earliest) is not None and deadline < self._timer_ms:
                self._arm()

    async def _append(self, batch: deque[Queued]) -> bool:
        """Return whether decisions were committed; otherwise they have been reported as failed."""
        marker = batch[0].result.marker
        try:
            if marker is not None:
                offset = await self.log.append_marker(marker)
            else:
                offset = await self.log.append(self._batch(batch))
        # Nothing was written, and it is known: the shard agrees with its log and stays loaded.
        except OutOfCapacityError as error:
            self._fail(batch, coordinator_code(error.code))
            return False
        except (KafkaError, OSError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
            logger.warning(
                "append to %s-%d: %s",
                self._writing.topic,
                self.partition,
                error,
                extra=event("coordinator_append_failed", **self._log_fields),
            )
            self._not_committed(batch, code)
            return False
        if self.dropped:
            self._fail(batch, ErrorCode.NOT_COORDINATOR)
            return False
        assert offset > self.offset_last, "decisions are replayed in the order of the log"
        self.offset_last = offset
        return True

    def _not_committed(self, batch: deque[Queued], code: ErrorCode) -> None:
        """Report decisions as failed; reload the shard if the log may have them."""
        self._fail(batch, coordinator_code(code))
        # The records may be in the log, or become so when the followers catch up. The shard has not
        # replayed them, so it cannot decide any further: only the log knows.
        if not self.dropped and code not in NOT_APPENDED:
            self._writing.reload(self)

    def _fail(self, batch: Iterable[Queued], code: ErrorCode) -> None:
        for result, request, _ in batch:
            for effect in result.effects:
                try:
                    self._follow(effect.failed(self._writing.now(), result, code))
                except Exception:  # noqa: BLE001 - logged; other requests would stay open
                    self._log_bug("reporting a failure")
            if request is not None:
                request.refuse(code)

    def _log_bug(self, step: str) -> None:
        """Log the exception that is being handled."""
        log_bug(step, f"{self._writing.topic}-{self.partition}", **self._log_fields)

    # Timers

    def _arm(self) -> None:
        """Set the timer so that the shard is called at its next deadline."""
        deadline = self.shard.deadlines.earliest
        if deadline is None or self.dropped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline
        delay_ms = max(deadline - self._writing.clock.monotonic_ms(), 0)
        self._timer = self._writing.tasks.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        if self.dropped:
            return
        now, deadlines = self._writing.now(), self.shard.deadlines
        try:
            # The timer counts as set meanwhile: once is enough to set the next one.
            while not self.dropped and (key := deadlines.pop_due(now.tick_ms)) is not None:
                try:
                    results = self.shard.on_due(now, key)
                except Exception:  # noqa: BLE001 - logged; other deadlines are due as well
                    self._log_bug("deciding at a deadline")
                    continue
                for result in results:
                    try:
                        self._follow((result,))
                    except Exception:  # noqa: BLE001 - logged; the next results have requests, too
                        self._log_bug("following a decision")
        finally:
            self._timer, self._timer_ms = None, inf
            self._arm()
