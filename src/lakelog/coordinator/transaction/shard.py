"""The transactional ids of one partition of `__transaction_state`.

Durable, changed by `replay` alone: the newest state of each id. Soft: which change of an id is on
its way to the log, which partitions of an ending transaction have their markers, and timers.

An id changes one step at a time: while a step is not committed, whoever wants another is told
CONCURRENT_TRANSACTIONS. Adding partitions is the exception, because a producer of KIP-890 adds them
with several requests at once: each builds upon the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.shard import Now, Result
from lakelog.coordinator.transaction.answer import Answer
from lakelog.coordinator.transaction.config import TransactionConfig
from lakelog.coordinator.transaction.listing import (
    TransactionFilter,
    describe_transaction,
    list_transaction,
)
from lakelog.coordinator.transaction.records import (
    TransactionRecord,
    decode_record,
    encode_record,
)
from lakelog.coordinator.transaction.state import (
    TopicPartition,
    Transaction,
    TransactionState,
    TransactionVersion,
)
from lakelog.coordinator.transaction.timers import TimerKey, TimerKind
from lakelog.coordinator.transaction.transitions import (
    End,
    Producer,
    check_end,
    check_producer,
    completed,
    ended,
    fenced,
    fenced_beyond,
    initialised,
    needs_next_producer_id,
    needs_producer_id,
    verified,
    with_partitions,
)
from lakelog.protocol.describe_transactions import TransactionState as DescribedTransaction
from lakelog.protocol.list_transactions import TransactionState as ListedTransaction

Decision = Result[TransactionRecord]
OnEnding = Callable[["TransactionShard", str, Transaction], None]
"""Called when a transaction has to tell its partitions how it ended."""

_RETRY_MS = 100


class TransactionShard:
    """Requests that are refused raise `KafkaError`, or are answered through their `reply`.

    `id_count` tells how many transactional ids there are in all partitions of the broker. Of
    producer ids below `forgotten_epochs_end` no epoch is given out that is not in the log: it may
    have been in a part of it that went with the power.
    """

    def __init__(
        self,
        config: TransactionConfig,
        on_ending: OnEnding,
        id_count: Callable[[], int],
        *,
        forgotten_epochs_end: int,
    ) -> None:
        self._config = config
        self._id_count = id_count
        self._forgotten_epochs_end = forgotten_epochs_end
        self._on_ending = on_ending
        self.transactions: dict[str, Transaction] = {}
        self._pending: dict[str, Transaction | None] = {}
        self._marked: dict[str, set[TopicPartition]] = {}
        self._deadlines: Deadlines[TimerKey] = Deadlines()
        self._is_unloaded = False

    # What a shard must be (`lakelog.coordinator.shard`)

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        return decode_record(key, value)

    def replay(self, record: TransactionRecord) -> None:
        if record.transaction is None:
            self.transactions.pop(record.transactional_id, None)
        else:
            self.transactions[record.transactional_id] = record.transaction

    def replay_pending(self, record: TransactionRecord, producer_id: int) -> None:
        raise AssertionError("no transaction writes to the topic of the transactions")

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        """An administrator's marker in this topic ends nothing."""

    def loaded(self, now: Now) -> list[Decision]:
        self._schedule_expiry(now)
        for transactional_id in self.transactions:
            self._arm(now, transactional_id)
        ending = [each for each, found in self.transactions.items() if found.state.is_ending]
        return [self._tell(transactional_id, now) for transactional_id in ending]

    def unloaded(self, code: ErrorCode) -> None:
        self._is_unloaded = True

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next()

    def advance(self, now: Now) -> list[Decision]:
        results: list[Decision] = []
        while (key := self._deadlines.pop_due(now.tick_ms)) is not None:
            if key.kind is TimerKind.EXPIRY:
                self._schedule_expiry(now)
                results += self._expire(now)
            else:
                results.append(self._time_out(now, key.transactional_id))
        return results

    # One step of an id

    def _step(
        self,
        now: Now,
        transactional_id: str,
        step: Transaction | None,
        committed: Callable[[Now], Decision | None],
        failed: Callable[[Now, ErrorCode], None],
    ) -> Decision:
        self._pending[transactional_id] = step

        def done() -> None:
            if self._pending.get(transactional_id) is step:
                self._pending.pop(transactional_id, None)

        def on_committed(now: Now) -> Decision | None:
            done()
            self._arm(now, transactional_id)
            return committed(now)

        def on_failed(now: Now, code: ErrorCode) -> None:
            done()
            self._arm(now, transactional_id)
            failed(now, code)

        return Result((TransactionRecord(transactional_id, step),), on_committed, on_failed)

    def _check_settled(self, transactional_id: str) -> None:
        if transactional_id in self._pending:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    # Requests of producers

    def needs_producer_id(self, transactional_id: str, expected: Producer | None) -> bool:
        """Whether `initialise` will need a producer id that nobody has had."""
        current = self.transactions.get(transactional_id)
        return needs_producer_id(current, expected, may_be_old=self._may_be_old(current))

    def _may_be_old(self, current: Transaction | None) -> bool:
        return current is not None and current.producer_id < self._forgotten_epochs_end

    def initialise(
        self,
        now: Now,
        transactional_id: str,
        expected: Producer | None,
        timeout_ms: int,
        new_producer_id: int,
        reply: Callable[[Answer], None],
    ) -> Decision:
        """InitProducerId: fences every other producer of the id, and ends what they left."""
        self._check_settled(transactional_id)
        current = self.transactions.get(transactional_id)
        if current is None and self._id_count() >= self._config.ids_max:
            text = "there are as many transactional ids as lakelog.transactional.ids.max allows"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
        is_old = self._may_be_old(current)
        step = initialised(
            current, expected, timeout_ms, now.wall_ms, new_producer_id, may_be_old=is_old
        )

        def committed(now: Now) -> Decision | None:
            if not step.state.is_ending:
                reply(Answer.of(step))
                return None
            reply(Answer(ErrorCode.CONCURRENT_TRANSACTIONS))
            return self._tell(transactional_id, now)

        def failed(_: Now, code: ErrorCode) -> None:
            reply(Answer(code))

        return self._step(now, transactional_id, step, committed, failed)

    def add_partitions(
        self,
        now: Now,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        version: TransactionVersion,
        reply: Callable[[ErrorCode], None],
    ) -> Decision:
        pending = self._pending.get(transactional_id)
        known = self.transactions.get(transactional_id)
        is_adding = pending is not None and pending.state is TransactionState.ONGOING
        current = check_producer(pending if is_adding else known, producer)
        if not is_adding:
            self._check_settled(transactional_id)
        step = with_partitions(current, partitions, version, now.wall_ms)
        if step is current and not is_adding:
            reply(ErrorCode.NONE)
            return Result()

        def committed(_: Now) -> None:
            reply(ErrorCode.NONE)

        def failed(_: Now, code: ErrorCode) -> None:
            reply(code)

        return self._step(now, transactional_id, step, committed, failed)

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        current = check_producer(self.transactions.get(transactional_id), producer)
        return verified(current, partitions)

    def needs_next_producer_id(self, transactional_id: str, version: TransactionVersion) -> bool:
        """Whether `end` will need a producer id that nobody has had."""
        current = self.transactions.get(transactional_id)
        return needs_next_producer_id(current, version, may_be_old=self._may_be_old(current))

    def end(
        self,
        now: Now,
        transactional_id: str,
        end: End,
        next_producer_id: int,
        reply: Callable[[Answer], None],
    ) -> Decision:
        """EndTxn. The reply comes with the decision; the markers follow."""
        current = check_end(self.transactions.get(transactional_id), end)
        self._check_settled(transactional_id)
        may_be_old = self._may_be_old(current)
        step = ended(current, end, now.wall_ms, next_producer_id, may_be_old=may_be_old)
        if step is None:
            reply(Answer.of(current))
            return Result()

        def committed(now: Now) -> Decision | None:
            reply(Answer.of(completed(step, now.wall_ms)))
            return self._tell(transactional_id, now)

        def failed(_: Now, code: ErrorCode) -> None:
            reply(Answer(code))

        return self._step(now, transactional_id, step, committed, failed)

    def fence(
        self, now: Now, transactional_id: str, partitions: Sequence[TopicPartition], epoch: int
    ) -> Decision:
        """Aborts what partitions have of its producer and is not known here, past that epoch."""
        current = self.transactions[transactional_id]
        step = fenced_beyond(current, partitions, epoch, now.wall_ms)

        def committed(now: Now) -> Decision:
            return self._tell(transactional_id, now)

        return self._step(now, transactional_id, step, committed, lambda _, code: None)

    # Markers

    def _tell(self, transactional_id: str, now: Now) -> Decision:
        """Sets the markers going; a transaction without partitions needs none."""
        ending = self.transactions[transactional_id]
        self._marked[transactional_id] = set()
        if not ending.partitions:
            return self.complete(now, transactional_id, ending, lambda code: None)
        self._on_ending(self, transactional_id, ending)
        return Result()

    def is_ending(self, transactional_id: str, ending: Transaction) -> bool:
        return not self._is_unloaded and self.transactions.get(transactional_id) is ending

    def unmarked(self, transactional_id: str, ending: Transaction) -> frozenset[TopicPartition]:
        if not self.is_ending(transactional_id, ending):
            return frozenset()
        return ending.partitions - self._marked[transactional_id]

    def marked(
        self, transactional_id: str, ending: Transaction, partitions: Sequence[TopicPartition]
    ) -> None:
        if self.is_ending(transactional_id, ending):
            self._marked[transactional_id].update(partitions)

    def complete(
        self,
        now: Now,
        transactional_id: str,
        ending: Transaction,
        reply: Callable[[ErrorCode], None],
    ) -> Decision:
        if not self.is_ending(transactional_id, ending):
            reply(ErrorCode.NONE)
            return Result()
        if transactional_id in self._pending:  # `fence`, after which it has more to tell
            reply(ErrorCode.CONCURRENT_TRANSACTIONS)
            return Result()

        def committed(_: Now) -> None:
            self._marked.pop(transactional_id, None)
            reply(ErrorCode.NONE)

        def failed(now: Now, code: ErrorCode) -> None:
            reply(code)
            if not ending.partitions:
                self._try_again(now, transactional_id)

        step = completed(ending, now.wall_ms)
        return self._step(now, transactional_id, step, committed, failed)

    # Time

    def _arm(self, now: Now, transactional_id: str) -> None:
        """An ongoing transaction has its timeout; whatever its clock says, not longer."""
        found = self.transactions.get(transactional_id)
        key = TimerKey(TimerKind.TIMEOUT, transactional_id)
        if found is None or found.state is not TransactionState.ONGOING:
            self._deadlines.cancel(key)
        elif key not in self._deadlines:
            left_ms = found.start_ms + found.timeout_ms - now.wall_ms
            self._deadlines.set(key, now.tick_ms + min(max(left_ms, 0), found.timeout_ms))

    def _time_out(self, now: Now, transactional_id: str) -> Decision:
        current = self.transactions.get(transactional_id)
        if current is None:
            return Result()
        if transactional_id in self._pending:
            self._try_again(now, transactional_id)
            return Result()
        if current.state.is_ending and not current.partitions:
            return self._tell(transactional_id, now)
        if current.state is not TransactionState.ONGOING:
            return Result()

        def committed(now: Now) -> Decision:
            return self._tell(transactional_id, now)

        def failed(now: Now, _: ErrorCode) -> None:
            self._try_again(now, transactional_id)

        step = fenced(current, now.wall_ms)
        return self._step(now, transactional_id, step, committed, failed)

    def _try_again(self, now: Now, transactional_id: str) -> None:
        key = TimerKey(TimerKind.TIMEOUT, transactional_id)
        self._deadlines.set(key, now.tick_ms + _RETRY_MS)

    def _schedule_expiry(self, now: Now) -> None:
        interval_ms = self._config.id_expiration_check_ms
        self._deadlines.set(TimerKey(TimerKind.EXPIRY), now.tick_ms + interval_ms)

    def _expire(self, now: Now) -> list[Decision]:
        """Forgets ids without a transaction that nobody has used for a long time."""
        before_ms = now.wall_ms - self._config.id_expiration_ms
        expired = [
            transactional_id
            for transactional_id, found in self.transactions.items()
            if (found.state is TransactionState.EMPTY or found.state.has_ended)
            and found.last_update_ms <= before_ms
            and transactional_id not in self._pending
        ]
        return [
            self._step(now, each, None, lambda _: None, lambda _, code: None) for each in expired
        ]

    # Questions

    def describe(self, transactional_id: str) -> DescribedTransaction:
        found = self.transactions.get(transactional_id)
        if found is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        told = self._marked.get(transactional_id, set())
        return describe_transaction(transactional_id, found, found.partitions - told)

    def list_transactions(self, wanted: TransactionFilter) -> Iterator[ListedTransaction]:
        for transactional_id, found in self.transactions.items():
            if wanted.accepts(transactional_id, found):
                yield list_transaction(transactional_id, found)
