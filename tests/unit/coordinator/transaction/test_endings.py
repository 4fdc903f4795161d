"""Ends of transactions: markers, completion, fences, and appends that fail."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.base.memory_budget import Share
from lakelog.coordinator.shard import Now, Result, SharedCount
from lakelog.coordinator.transaction.config import TransactionConfig
from lakelog.coordinator.transaction.endings import Endings
from lakelog.coordinator.transaction.ids import Decision, Fence, Fences, TransactionalIds
from lakelog.coordinator.transaction.records import TransactionRecord
from lakelog.coordinator.transaction.state import (
    OpenTransaction,
    TopicPartition,
    Transaction,
    TransactionState,
)

S = TransactionState
NOW = Now(50_000, 1000)
A, B = ("orders", 0), ("orders", 1)


@dataclass
class _Shard:
    """Transactional ids with their endings, over a log that commits or fails at once."""

    failure: ErrorCode | None = None
    fences: Fences = field(default_factory=dict)
    begun: list[Transaction] = field(default_factory=list)
    """Transactions whose markers were requested."""
    replies: list[ErrorCode | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ids = TransactionalIds(
            TransactionConfig(), SharedCount(), self.fences, Share(), forgotten_epochs_end=0
        )
        self.endings = Endings(0, 3, self.ids, self._note, self.fences)
        self.ids.effects = (self.endings,)

    def _note(self, _: Endings, __: str, ending: Transaction) -> None:
        self.begun.append(ending)

    def hold(self, state: TransactionState, *partitions: TopicPartition) -> Transaction:
        current = Transaction(
            producer_id=1000,
            producer_epoch=5,
            timeout_ms=60_000,
            state=state,
            partitions=frozenset(partitions),
            start_ms=40_000,
            last_update_ms=40_000,
        )
        self.ids.replay(TransactionRecord("t", current))
        return current

    def run(self, decision: Decision) -> None:
        """Commit the records of a decision and of its further decisions."""
        if self.failure is not None and decision.records:
            for effect in decision.effects:
                effect.failed(NOW, decision, self.failure)
            self.replies.append(self.failure)
            return
        for record in decision.records:
            self.ids.replay(record)
        self.replies.append(decision.reply)
        for effect in decision.effects:
            for further in effect.committed(NOW, decision) or ():
                self.run(further)

    def complete(self, ending: Transaction) -> None:
        self.replies.clear()
        self.run(self.endings.complete(NOW, "t", ending))

    @property
    def current(self) -> Transaction:
        return self.ids.transactions["t"]

    def retries_after(self, pause_ms: int) -> bool:
        """Return whether the retry is due after exactly this pause, and remove its timer."""
        due_ms = NOW.tick_ms + pause_ms
        early = self.ids.deadlines.pop_due(due_ms - 1)
        return early is None and self.ids.deadlines.pop_due(due_ms) is not None


@pytest.mark.parametrize(
    ("prepared", "complete"),
    [(S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (S.PREPARE_ABORT, S.COMPLETE_ABORT)],
)
def test_a_transaction_is_complete_once_each_partition_has_its_marker(
    prepared: TransactionState, complete: TransactionState
) -> None:
    shard = _Shard()
    ending = shard.hold(prepared, A, B)
    shard.run(shard.endings.write_markers("t", NOW))
    assert shard.begun == [ending]
    shard.endings.marked("t", ending, [A])
    assert shard.endings.unmarked("t", ending) == {B}
    with pytest.raises(AssertionError):
        shard.complete(ending)
    shard.endings.marked("t", ending, [B])
    shard.complete(ending)
    assert (shard.current.state, shard.replies) == (complete, [ErrorCode.NONE])
    assert shard.endings.marked_partitions("t") == set()


def test_a_transaction_without_partitions_completes_without_markers() -> None:
    shard = _Shard()
    shard.hold(S.PREPARE_ABORT)
    shard.run(shard.endings.write_markers("t", NOW))
    assert (shard.current.state, shard.begun) == (S.COMPLETE_ABORT, [])


def test_a_completion_without_partitions_is_retried_by_a_timer() -> None:
    """No marker writer exists that would retry it."""
    shard = _Shard(failure=ErrorCode.NOT_ENOUGH_REPLICAS)
    shard.hold(S.PREPARE_ABORT)
    shard.run(shard.endings.write_markers("t", NOW))
    assert shard.current.state is S.PREPARE_ABORT
    assert shard.retries_after(100)


def test_the_marker_writer_learns_that_a_completion_failed() -> None:
    shard = _Shard()
    ending = shard.hold(S.PREPARE_COMMIT, A)
    shard.run(shard.endings.write_markers("t", NOW))
    shard.endings.marked("t", ending, [A])
    shard.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    shard.complete(ending)
    assert shard.replies == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert shard.endings.marked_partitions("t") == {A}, "the marker is not repeated"
    shard.failure = None
    shard.complete(ending)
    assert shard.current.state is S.COMPLETE_COMMIT


def test_late_markers_of_an_earlier_transaction_change_nothing() -> None:
    shard = _Shard()
    ending = shard.hold(S.PREPARE_COMMIT, A)
    shard.run(shard.endings.write_markers("t", NOW))
    newer = shard.hold(S.PREPARE_ABORT, A, B)
    shard.run(shard.endings.write_markers("t", NOW))
    shard.endings.marked("t", ending, [A])
    assert shard.endings.unmarked("t", newer) == {A, B}
    assert shard.endings.unmarked("t", ending) == frozenset()
    shard.complete(ending)
    assert (shard.current, shard.replies) == (newer, [ErrorCode.NONE])


def test_an_unloaded_shard_decides_nothing() -> None:
    """Another broker may have decided otherwise."""
    shard = _Shard()
    ending = shard.hold(S.PREPARE_COMMIT, A)
    shard.run(shard.endings.write_markers("t", NOW))
    shard.endings.is_unloaded = True
    assert shard.endings.unmarked("t", ending) == frozenset()
    shard.complete(ending)
    assert shard.current is ending


def test_an_abort_fences_the_producer() -> None:
    shard = _Shard()
    shard.run(shard.endings.abort(NOW, "t", shard.hold(S.ONGOING, A)))
    assert (shard.current.state, shard.current.producer_epoch) == (S.PREPARE_ABORT, 6)
    assert shard.begun == [shard.current]


def test_a_failed_abort_is_retried_and_changes_no_epoch() -> None:
    shard = _Shard(failure=ErrorCode.REQUEST_TIMED_OUT)
    shard.run(shard.endings.abort(NOW, "t", shard.hold(S.ONGOING, A)))
    assert (shard.current.state, shard.current.producer_epoch) == (S.ONGOING, 5)
    assert shard.retries_after(100)


def _fence() -> Fence:
    return Fence([OpenTransaction(*B, 1000, 7, -1, 0)])


def test_a_fence_aborts_hanging_partitions_past_all_their_epochs() -> None:
    shard = _Shard(fences={"t": _fence()})
    shard.hold(S.ONGOING, A)
    shard.run(shard.endings.fence(NOW, "t"))
    assert shard.current.state is S.PREPARE_ABORT
    assert (shard.current.producer_epoch, shard.current.partitions) == (9, frozenset({A, B}))
    assert shard.begun == [shard.current]
    assert shard.fences == {}


def test_a_failed_fence_stays_pending_and_each_retry_waits_longer() -> None:
    shard = _Shard(failure=ErrorCode.NOT_ENOUGH_REPLICAS, fences={"t": _fence()})
    shard.hold(S.ONGOING, A)
    for pause_ms in (100, 200, 400):
        shard.run(shard.endings.fence(NOW, "t"))
        assert shard.retries_after(pause_ms)
    assert "t" in shard.fences


def test_a_decided_commit_completes_before_the_fence() -> None:
    shard = _Shard(fences={"t": _fence()})
    ending = shard.hold(S.PREPARE_COMMIT, A)
    shard.run(shard.endings.write_markers("t", NOW))
    shard.run(shard.endings.fence(NOW, "t"))
    assert shard.current is ending
    shard.endings.marked("t", ending, [A])
    shard.complete(ending)
    assert (shard.current.state, shard.current.partitions) == (S.PREPARE_ABORT, frozenset({B}))


def test_an_abort_is_not_complete_before_its_fence_is_written() -> None:
    """The fence adds partitions, which need markers too."""
    shard = _Shard(fences={"t": _fence()})
    ending = shard.hold(S.PREPARE_ABORT, A)
    shard.run(shard.endings.write_markers("t", NOW))
    shard.endings.marked("t", ending, [A])
    shard.complete(ending)
    assert (shard.current, shard.replies) == (ending, [ErrorCode.CONCURRENT_TRANSACTIONS])


def test_nothing_is_written_while_another_step_is_being_written() -> None:
    shard = _Shard()
    ending = shard.hold(S.PREPARE_COMMIT, A)
    shard.run(shard.endings.write_markers("t", NOW))
    shard.endings.marked("t", ending, [A])
    shard.ids.pending["t"] = ending
    decision = shard.endings.complete(NOW, "t", ending)
    assert decision == Result(reply=ErrorCode.CONCURRENT_TRANSACTIONS)


def test_a_step_of_a_client_that_fails_is_left_to_the_client() -> None:
    """A retry would abort a transaction whose only fault was one failed record."""
    shard = _Shard()
    current = shard.hold(S.ONGOING, A)
    for state, reply in ((S.ONGOING, ErrorCode.NONE), (S.PREPARE_COMMIT, "a producer")):
        decision = shard.ids.step(NOW, "t", replace(current, state=state), reply)
        shard.endings.failed(NOW, decision, ErrorCode.NOT_ENOUGH_REPLICAS)
        assert shard.ids.find("t") == (current, True, False)
        assert shard.ids.deadlines.earliest == NOW.tick_ms + 50_000, "the timeout, no retry"
