"""The transactional ids of a shard: the state of each, and the step that is being written.

Durable state, changed by `replay` only: the newest state of each id. Soft state: the step that is
not committed yet, and timers.

An id changes one step at a time. Until a step is committed, other requests get
CONCURRENT_TRANSACTIONS. Adding partitions is the exception: a producer with KIP-890 adds them with
several requests at once, and each step builds on the one before.

A fence is pending from the moment that `hanging` finds a transaction until the fence's record is
committed. It outlives the shard, because a shard that cannot write is dropped and reloaded. Until
then no other step of the transactional id is decided, because its producer could commit records
that have to be aborted.

`TransactionConfig` is the broker's configuration of the coordinator, under Kafka's keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Account, Share, text_bytes
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.shard import LATER, Effect, Now, Result, ShardCount, SharedCount
from lakelog.coordinator.transaction.records import TransactionRecord
from lakelog.coordinator.transaction.state import (
    NEXT_STATES,
    Child,
    OpenTransaction,
    Sink,
    TopicPartition,
    Transaction,
    TransactionState,
)
from lakelog.coordinator.transaction.transitions import Known


class Values(Protocol):
    """The broker's configuration."""

    def get_int(self, name: str) -> int: ...


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Settings of the transaction coordinator; times in milliseconds, sizes in bytes.

    The defaults equal Apache Kafka 4.4.
    """

    timeout_max_ms: int = 900_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    id_expiration_check_ms: int = 3_600_000
    ids_max: int = 100_000
    partitions: int = 50
    batch_bytes_max: int = 1_048_588

    @staticmethod
    def from_broker(values: Values) -> TransactionConfig:
        """Return the settings of a broker."""
        return TransactionConfig(
            timeout_max_ms=values.get_int("transaction.max.timeout.ms"),
            id_expiration_ms=values.get_int("transactional.id.expiration.ms"),
            id_expiration_check_ms=values.get_int(
                "transaction.remove.expired.transaction.cleanup.interval.ms"
            ),
            ids_max=values.get_int("lakelog.transactional.ids.max"),
            partitions=values.get_int("transaction.state.log.num.partitions"),
            batch_bytes_max=values.get_int("message.max.bytes"),
        )


_ID_BYTES = 1024
"""Memory of a transactional id with its timer."""
_PART_BYTES = 256
"""Memory of a sink's control record without its texts, or of a child in the index of its sink."""
_PARTITION_BYTES = 192
"""Memory of a partition in a transaction, without the name of its topic."""

Decision = Result[TransactionRecord]

_RETRY_MS = 100


class TimerKind(Enum):
    """The event at which a timer fires."""

    TIMEOUT = "timeout"
    """A transaction has timed out, or a failed step of a transactional id is due for a retry."""
    EXPIRY = "expiry"
    """The check for unused transactional ids is due."""


class TimerKey(NamedTuple):
    """One timer; `EXPIRY` is a timer of the whole shard."""

    kind: TimerKind
    transactional_id: str = ""


_RETRY_FIRST_MS = 100
_RETRY_LONGEST_MS = 10_000


class Fence:
    """The hanging transactions of one transactional id, at least one, all of one producer id."""

    __slots__ = ("_pause_ms", "epoch", "partitions", "producer_id")

    def __init__(self, open_txns: Sequence[OpenTransaction]) -> None:
        self.producer_id = open_txns[0].producer_id
        # Records of another producer id cannot be fenced by an epoch of this one.
        assert all(open_txn.producer_id == self.producer_id for open_txn in open_txns)
        self.epoch = max(open_txn.producer_epoch for open_txn in open_txns)
        self.partitions: list[TopicPartition] = [open_txn.topic_partition for open_txn in open_txns]
        self._pause_ms = _RETRY_FIRST_MS

    def is_pending(self, current: Transaction | None) -> bool:
        """Return whether the fence is still necessary.

        It is not once the transactional id has a newer epoch or another producer id.
        """
        return (
            current is not None
            and current.producer_id == self.producer_id
            # The fence itself raises the epoch above all hanging ones, so it ends by its own
            # record.
            and current.producer_epoch <= self.epoch
        )

    def next_pause_ms(self) -> int:
        """Return the milliseconds to wait before the next retry.

        Each pause is twice the one before, up to 10 s: a retry may reload the whole partition.
        """
        pause_ms = self._pause_ms
        self._pause_ms = min(pause_ms * 2, _RETRY_LONGEST_MS)
        return pause_ms


Fences = dict[str, Fence]
"""Fences of all partitions by transactional id."""


class TransactionalIds:
    """The transactional ids of one partition.

    Args:
        id_count: counts the transactional ids of all loaded partitions.
        fences: pending fences of all partitions.
        memory: budget of all state that clients cause.
        forgotten_epochs_end: for producer ids below it, the coordinator gives out no epoch that is
            not in the log: a power failure may have removed the record of that epoch.
    """

    def __init__(
        self,
        config: TransactionConfig,
        id_count: SharedCount,
        fences: Fences,
        memory: Share,
        *,
        forgotten_epochs_end: int,
    ) -> None:
        self._ids_max = config.ids_max
        self._id_count = id_count
        self.count = ShardCount(id_count)
        self._forgotten_epochs_end = forgotten_epochs_end
        self._fences = fences
        self.account: Account[str] = Account(memory)
        self.transactions: dict[str, Transaction] = {}
        self.pending: dict[str, Transaction | None] = {}
        """Steps that are being written; None is a tombstone."""
        self.deadlines: Deadlines[TimerKey] = Deadlines()
        self.follow_part: Callable[[TransactionRecord], None] = lambda record: None
        """Called after the replay of a record that is, or may have been, part of a commit set."""
        self.effects: tuple[Effect, ...] = ()
        """Effects of each step; see `Endings`."""

    def replay(self, record: TransactionRecord) -> None:
        """Apply a committed record."""
        name, new = record
        # An addition that builds on this step may have replaced it. That one is not committed yet.
        if self.pending.get(name) is new:
            self.pending.pop(name, None)
        # Counted on replay and not when decided: a loaded shard has to count the same bytes as the
        # shard that wrote them.
        self.account.add(name, memory_of(name, new) - self.account.of(name))
        is_known = name in self.transactions
        if new is not None:
            self.transactions[name] = new
            if not is_known:
                self.count.add(1)
        elif is_known:
            del self.transactions[name]
            self.count.add(-1)
        if new is None or new.part is not None:
            self.follow_part(record)

    @property
    def has_capacity(self) -> bool:
        """Whether one more transactional id is allowed."""
        return self._id_count.total < self._ids_max

    def check_capacity(self) -> None:
        """Raise `KafkaError(POLICY_VIOLATION)` if there are too many transactional ids."""
        if not self.has_capacity:
            text = (
                "The number of transactional ids has reached lakelog.transactional.ids.max: raise "
                "that limit, or wait until unused ids expire (transactional.id.expiration.ms)."
            )
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)

    def find(self, transactional_id: str) -> Known:
        """Return the state of an id, for a decision about its next step."""
        current = self.transactions.get(transactional_id)
        # A client may hold a later epoch, whose record a power failure removed. If that epoch were
        # assigned again, two producers could write under one identity.
        is_old = current is not None and current.producer_id < self._forgotten_epochs_end
        return Known(current, self.is_complete(transactional_id), is_old)

    def find_adding(self, transactional_id: str) -> Known:
        """Return the state of an id for the addition of partitions.

        An addition that is being written counts as done: additions build on each other.
        """
        pending = self.pending.get(transactional_id)
        if pending is not None and pending.state is TransactionState.ONGOING:
            return Known(pending, is_complete=True, may_be_old=False)
        return self.find(transactional_id)

    def _check_memory(self, transactional_id: str, step: Transaction) -> None:
        more = memory_of(transactional_id, step) - self.account.of(transactional_id)
        if not self.account.may_grow(transactional_id, more):
            text = (
                "The state of transactions and groups would exceed its memory: raise "
                "lakelog.coordinator.state.max.bytes, or use fewer partitions in a transaction."
            )
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)

    def is_complete(self, transactional_id: str) -> bool:
        """Return whether the id's next step may be decided."""
        return not (transactional_id in self.pending or self.has_pending_fence(transactional_id))

    def has_pending_fence(self, transactional_id: str) -> bool:
        """Return whether a fence has to come before any other step of the id."""
        fence = self._fences.get(transactional_id)
        return fence is not None and fence.is_pending(self.transactions.get(transactional_id))

    def step(
        self,
        now: Now,
        transactional_id: str,
        step: Transaction | None,
        reply: Any = LATER,
        *,
        by_client: bool = False,
    ) -> Decision:
        """Return the decision that writes `step`, or a tombstone if it is None.

        Args:
            reply: as in `Result`.
            by_client: whether a client adds state, which needs memory. If there is too little, the
                step raises `KafkaError(POLICY_VIOLATION)`.
        """
        # All checks come before `pending` changes: a step that raises leaves nothing behind.
        self._check_step(transactional_id, step)
        if by_client and step is not None:
            self._check_memory(transactional_id, step)
        self.pending[transactional_id] = step
        self._arm(now, transactional_id, step)
        return Result((TransactionRecord(transactional_id, step),), reply, self.effects)

    def steps(
        self,
        now: Now,
        steps: Mapping[str, Transaction | None],
        reply: Any,
        *effects: Effect,
        by_client: bool = False,
    ) -> Decision:
        """Return the decision that writes steps of several ids in one record batch.

        All ids must be complete. Arguments as for `step`, and further effects.
        """
        for name, step in steps.items():
            assert self.is_complete(name), "a step is decided on a complete state"
            self._check_step(name, step)
            if by_client and step is not None:
                self._check_memory(name, step)
        self.pending.update(steps)
        for name, step in steps.items():
            self._arm(now, name, step)
        records = tuple(TransactionRecord(name, step) for name, step in steps.items())
        return Result(records, reply, (*self.effects, *effects))

    def forget(self, now: Now, record: TransactionRecord) -> None:
        """Drop a step that was not written: the state before it holds, or the step built on it."""
        name, step = record
        if self.pending.get(name) is step:
            self.pending.pop(name, None)
        self._arm(now, name, self.pending.get(name) or self.transactions.get(name))

    def _check_step(self, transactional_id: str, step: Transaction | None) -> None:
        """Assert that the step may follow the current state."""
        current = self.transactions.get(transactional_id)
        before = None if current is None else current.state
        after = None if step is None else step.state
        assert after in NEXT_STATES.get(before, {after}), f"{before} to {after}"
        if (pending := self.pending.get(transactional_id)) is not None:
            ongoing = TransactionState.ONGOING
            assert pending.state is after is ongoing, "only added partitions may build on a step"
        if current is not None and step is not None and current.producer_id == step.producer_id:
            assert step.producer_epoch >= current.producer_epoch, "an epoch went back"

    def arm(self, now: Now, transactional_id: str) -> None:
        """Set the timeout of an ongoing transaction, or cancel it.

        A wall clock that was set back cannot extend the timeout.
        """
        self._arm(now, transactional_id, self.transactions.get(transactional_id))

    def _arm(self, now: Now, transactional_id: str, transaction: Transaction | None) -> None:
        key = TimerKey(TimerKind.TIMEOUT, transactional_id)
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            if key in self.deadlines.at:
                self.deadlines.cancel(key)
        elif key not in self.deadlines.at:
            # From the wall clock in the record, because the monotonic clock of another broker, or
            # of the process before a restart, has another origin.
            left_ms = transaction.start_ms + transaction.timeout_ms - now.wall_ms
            self.deadlines.set(key, now.tick_ms + min(left_ms, transaction.timeout_ms))

    def try_again(self, now: Now, transactional_id: str, pause_ms: int = _RETRY_MS) -> None:
        """Have the shard retry the id's pending work after a pause, in milliseconds."""
        key = TimerKey(TimerKind.TIMEOUT, transactional_id)
        self.deadlines.set(key, now.tick_ms + pause_ms)


def memory_of(transactional_id: str, transaction: Transaction | None) -> int:
    """Return the estimated memory of a transactional id in bytes."""
    if transaction is None:
        return 0
    partitions = sum([_PARTITION_BYTES + len(topic) for topic, _ in transaction.partitions])
    size = _ID_BYTES + partitions + text_bytes(transactional_id)
    return size if transaction.part is None else size + _memory_of_part(transaction.part)


def _memory_of_part(part: Sink | Child) -> int:
    if isinstance(part, Child):
        return _PART_BYTES
    texts = text_bytes(part.query_id) + text_bytes(part.run_id)
    return _PART_BYTES + texts + len(part.former_runs) + len(part.earlier_runs)
