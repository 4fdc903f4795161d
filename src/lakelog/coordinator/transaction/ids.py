"""The transactional ids of a shard: where each stands, and which change of it is on its way.

Durable, changed by `replay` alone: the newest state of each id. Soft: its step that is not in the
log yet, and timers.

An id changes one step at a time: while a step is not committed, whoever wants another is told
CONCURRENT_TRANSACTIONS. Adding partitions is the exception, because a producer of KIP-890 adds them
with several requests at once: each builds upon the one before.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.state_room import StateAccount, StateRoom, text_bytes
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.shard import Now, Result
from lakelog.coordinator.shared_count import ShardCount, SharedCount
from lakelog.coordinator.transaction.config import TransactionConfig
from lakelog.coordinator.transaction.fences import Fences
from lakelog.coordinator.transaction.records import TransactionRecord
from lakelog.coordinator.transaction.state import NEXT_STATES, Transaction, TransactionState
from lakelog.coordinator.transaction.timers import TimerKey, TimerKind

_ID_BYTES = 1024
"""Of a transactional id with its timer."""
_PARTITION_BYTES = 192
"""Of a partition in a transaction, beside its topic's name."""

Decision = Result[TransactionRecord]

_RETRY_MS = 100


class TransactionalIds:
    """`id_count` counts the transactional ids of all partitions that are loaded. Of producer ids
    below `forgotten_epochs_end` no epoch is given out that is not in the log: it may
    have been in a part of it that went with the power.
    """

    def __init__(
        self,
        config: TransactionConfig,
        id_count: SharedCount,
        fences: Fences,
        memory: StateRoom,
        *,
        forgotten_epochs_end: int,
    ) -> None:
        self._ids_max = config.ids_max
        self._id_count = id_count
        self.count = ShardCount(id_count)
        self._forgotten_epochs_end = forgotten_epochs_end
        self._fences = fences
        self.account = StateAccount(memory)
        self.transactions: dict[str, Transaction] = {}
        self.pending: dict[str, Transaction | None] = {}
        """The step that is on its way to the log, none if the id is to be forgotten."""
        self.deadlines: Deadlines[TimerKey] = Deadlines()

    def replay(self, record: TransactionRecord) -> None:
        name, new = record
        self.account.note(name, memory_of(name, new) - self.account.of(name))
        is_known = name in self.transactions
        if new is not None:
            self.transactions[name] = new
            self.count.add(not is_known)
        elif is_known:
            del self.transactions[name]
            self.count.add(-1)

    @property
    def has_room(self) -> bool:
        """For one more."""
        return self._id_count.total < self._ids_max

    def check_room(self) -> None:
        """Raises POLICY_VIOLATION for one id too many."""
        if not self.has_room:
            text = (
                "there are as many transactional ids as lakelog.transactional.ids.max allows: "
                "raise it, or wait until some have expired (transactional.id.expiration.ms)"
            )
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)

    def check_memory(self, transactional_id: str, step: Transaction) -> None:
        """Raises POLICY_VIOLATION if there is no room for what the id would take."""
        more = memory_of(transactional_id, step) - self.account.of(transactional_id)
        if not self.account.may_grow(transactional_id, more):
            text = (
                "the state of transactions and groups would exceed its memory: raise "
                "lakelog.coordinator.state.max.bytes, or use fewer partitions in a transaction"
            )
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)

    def check_settled(self, transactional_id: str) -> None:
        if not self.is_settled(transactional_id):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def is_settled(self, transactional_id: str) -> bool:
        """Whether its next step may be decided."""
        return not (transactional_id in self.pending or self.is_to_be_fenced(transactional_id))

    def is_to_be_fenced(self, transactional_id: str) -> bool:
        """Before anything else is decided for it."""
        fence = self._fences.get(transactional_id)
        return fence is not None and fence.is_owed(self.transactions.get(transactional_id))

    def may_be_old(self, current: Transaction | None) -> bool:
        """Whether later epochs of its producer id may have been given out."""
        return current is not None and current.producer_id < self._forgotten_epochs_end

    def step(
        self,
        now: Now,
        transactional_id: str,
        step: Transaction | None,
        committed: Callable[[Now], Decision | None],
        failed: Callable[[Now, ErrorCode], None],
    ) -> Decision:
        self._check_step(transactional_id, step)
        self.pending[transactional_id] = step

        def done() -> None:
            if self.pending.get(transactional_id) is step:
                self.pending.pop(transactional_id, None)

        def on_committed(now: Now) -> Decision | None:
            done()
            self.arm(now, transactional_id)
            return committed(now)

        def on_failed(now: Now, code: ErrorCode) -> None:
            done()
            self.arm(now, transactional_id)
            failed(now, code)

        return Result((TransactionRecord(transactional_id, step),), on_committed, on_failed)

    def _check_step(self, transactional_id: str, step: Transaction | None) -> None:
        """Whether the step may follow: a wrong one would fence nobody, or decide twice."""
        current = self.transactions.get(transactional_id)
        before = None if current is None else current.state
        after = None if step is None else step.state
        assert after in NEXT_STATES.get(before, {after}), f"{before} to {after}"
        if (pending := self.pending.get(transactional_id)) is not None:
            ongoing = TransactionState.ONGOING
            assert pending.state is after is ongoing, "one step at a time, but for partitions"
        if current is not None and step is not None and current.producer_id == step.producer_id:
            assert step.producer_epoch >= current.producer_epoch, "an epoch went back"

    def arm(self, now: Now, transactional_id: str) -> None:
        """An ongoing transaction has its timeout; whatever its clock says, not longer."""
        found = self.transactions.get(transactional_id)
        key = TimerKey(TimerKind.TIMEOUT, transactional_id)
        if found is None or found.state is not TransactionState.ONGOING:
            self.deadlines.cancel(key)
        elif key not in self.deadlines:
            left_ms = found.start_ms + found.timeout_ms - now.wall_ms
            self.deadlines.set(key, now.tick_ms + min(max(left_ms, 0), found.timeout_ms))

    def try_again(self, now: Now, transactional_id: str, pause_ms: int = _RETRY_MS) -> None:
        """Has the shard look at the id again soon, as when its transaction times out."""
        key = TimerKey(TimerKind.TIMEOUT, transactional_id)
        self.deadlines.set(key, now.tick_ms + pause_ms)


def memory_of(transactional_id: str, found: Transaction | None) -> int:
    """Bytes by estimate."""
    if found is None:
        return 0
    partitions = sum([_PARTITION_BYTES + len(topic) for topic, _ in found.partitions])
    return _ID_BYTES + partitions + text_bytes(transactional_id)
