"""Ends of transactions: markers, completion, fences, and appends that fail."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Share
from lakelog.coordinator.shard import Now, Result, SharedCount
from lakelog.coordinator.transaction.endings import Endings, Marker
from lakelog.coordinator.transaction.ids import (
    Decision,
    Fence,
    Fences,
    TransactionalIds,
    TransactionConfig,
)
from lakelog.coordinator.transaction.records import TransactionRecord
from lakelog.coordinator.transaction.state import (
    OpenTransaction,
    TopicPartition,
    Transaction,
    TransactionState,
)
from transaction_setup import BUMPING, Setup, in_virtual_time

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


PARTITIONS = [("orders", index) for index in range(4)]


@in_virtual_time()
async def test_every_partition_gets_a_marker(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, *PARTITIONS, version=BUMPING)
    for topic, index in PARTITIONS:
        setup.markers.partition(topic, index).append(producer, "kept")
    await setup.end(producer, commit=True, version=BUMPING)
    assert await setup.settled() == "CompleteCommit"
    for topic, index in PARTITIONS:
        assert setup.markers.partition(topic, index).visible == ["kept"]
    assert {marker.coordinator_epoch for marker in setup.markers.written} == {setup.epoch}
    assert {marker.transaction_version for marker in setup.markers.written} == {BUMPING}


@in_virtual_time()
async def test_each_decision_has_a_higher_number_than_all_before(setup: Setup) -> None:
    """Also after a shard was loaded again in the same leader epoch; a repetition has the same."""
    producer = await setup.ready()
    numbers: list[set[int]] = []
    for commit in (True, False, True):
        await setup.add(producer, ("orders", 0), ("orders", 1))
        fates = itertools.chain(["lost", "ok", "kept"], itertools.repeat("ok"))
        setup.markers.fate = lambda fates=fates: next(fates)  # type: ignore[misc]
        await setup.end(producer, commit=commit)
        await setup.settled()
        numbers.append({marker.decision for marker in setup.markers.written})
        setup.markers.written.clear()
        setup.coordinator.unload_partition(0)
        await setup.coordinator.load_partition(0, setup.epoch)
    assert [len(each) for each in numbers] == [1, 1, 1]
    assert 0 <= max(numbers[0]) < max(numbers[1]) < max(numbers[2])


@in_virtual_time()
async def test_a_shard_never_adopts_a_later_coordinator_epoch(setup: Setup) -> None:
    """Another coordinator may have decided otherwise in it, and its markers must win."""
    producer = await setup.ready()
    await setup.add(producer, ("orders", 0))
    fates = itertools.chain(["lost"] * 2, itertools.repeat("ok"))
    setup.markers.fate = lambda: next(fates)
    loaded_in = setup.epoch
    await setup.end(producer, commit=False)
    setup.log.leader_epochs[0] = setup.epoch = loaded_in + 1
    await asyncio.sleep(5)
    assert {marker.coordinator_epoch for marker in setup.markers.written} == {loaded_in}
    await setup.coordinator.load_partition(0, setup.epoch)
    assert await setup.settled() == "CompleteAbort"
    assert setup.markers.written[-1].coordinator_epoch == loaded_in + 1


@in_virtual_time()
async def test_only_failed_markers_are_retried(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, *PARTITIONS)
    fates = itertools.chain(["ok", "lost", "kept", "ok"], itertools.repeat("ok"))
    setup.markers.fate = lambda: next(fates)
    await setup.end(producer, commit=False)
    assert await setup.settled() == "CompleteAbort"
    told = [marker.partition for marker in setup.markers.written]
    assert told == [0, 2, 3, 1, 2], "one was lost, one written twice"


@in_virtual_time()
async def test_a_deleted_partition_needs_no_marker(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, *PARTITIONS)
    setup.markers.gone = {("orders", 1)}
    await setup.end(producer, commit=True)
    assert await setup.settled() == "CompleteCommit"


@in_virtual_time()
async def test_a_newer_coordinator_ends_the_work_of_an_older_one(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, ("orders", 0))

    async def write(markers: object) -> list[ErrorCode]:
        return [ErrorCode.TRANSACTION_COORDINATOR_FENCED]

    setup.markers.write = write  # type: ignore[method-assign]
    await setup.end(producer, commit=True)
    await asyncio.sleep(60)
    assert setup.state() == "PrepareCommit"
    assert not setup.coordinator._markers._running


@in_virtual_time()
async def test_kafka_19999_a_coordinator_killed_between_markers_and_complete(
    setup: Setup,
) -> None:
    for round_ in range(20):
        producer = await setup.ready()
        await setup.add(producer, *PARTITIONS, version=BUMPING)
        for topic, index in PARTITIONS:
            setup.markers.partition(topic, index).append(producer, f"{round_}")
        setup.markers.delay_s = lambda: 0.25
        answer = await setup.end(producer, commit=True, version=BUMPING)
        assert answer.code == ErrorCode.NONE
        await asyncio.sleep(0.25 * (round_ % 6))
        await setup.restart()
        setup.markers.delay_s = lambda: 0.0
        assert await setup.settled() == "CompleteCommit"
        assert setup.identity() == answer[1:]
    for topic, index in PARTITIONS:
        assert setup.markers.partition(topic, index).visible == [str(n) for n in range(20)]


@in_virtual_time()
async def test_complete_is_tried_until_it_is_in_the_log(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, ("orders", 0))
    fates = itertools.chain(["ok", "refused", "kept"], itertools.repeat("ok"))
    setup.log.fate = lambda: next(fates)
    await setup.end(producer, commit=True)
    await asyncio.sleep(5)
    assert setup.state() == "CompleteCommit"
    await setup.restart()
    assert setup.state() == "CompleteCommit"


@in_virtual_time()
async def test_an_abort_of_nothing_needs_no_marker(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.end(producer, commit=False, version=BUMPING)
    assert await setup.settled() == "CompleteAbort"
    assert not setup.markers.written


@in_virtual_time()
async def test_an_abort_of_nothing_whose_completion_failed_is_completed(
    setup: Setup,
) -> None:
    producer = await setup.ready()
    fates = itertools.chain(["ok", "refused", "refused"], itertools.repeat("ok"))
    setup.log.fate = lambda: next(fates)
    await setup.end(producer, commit=False, version=BUMPING)
    assert setup.state() == "PrepareAbort"
    await asyncio.sleep(1)
    assert setup.state() == "CompleteAbort"


@in_virtual_time()
async def test_a_writer_that_fails_as_a_whole_is_tried_again(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, ("orders", 0))
    write = setup.markers.write
    failures = iter((KafkaError(ErrorCode.NETWORK_EXCEPTION), OSError("gone")))

    async def failing(markers: Sequence[Marker]) -> list[ErrorCode]:
        failure = next(failures, None)
        if failure is not None:
            raise failure
        return await write(markers)

    setup.markers.write = failing  # type: ignore[method-assign]
    await setup.end(producer, commit=True)
    assert await setup.settled() == "CompleteCommit"


@in_virtual_time()
async def test_markers_of_a_dropped_shard_come_first(setup: Setup) -> None:
    """The shard is dropped while its marker is in flight: the next transaction has to wait."""
    producer = await setup.ready()
    await setup.add(producer, ("orders", 0))
    setup.markers.partition("orders", 0).append(producer, "one")
    setup.markers.delay_s = lambda: 5.0
    await setup.end(producer, commit=False)
    await asyncio.sleep(1)
    setup.coordinator.unload_partition(0)
    await setup.coordinator.load_partition(0, setup.epoch)
    setup.markers.delay_s = lambda: 0.0
    assert (await setup.init()).code == ErrorCode.CONCURRENT_TRANSACTIONS
    await setup.settled()
    assert setup.loop.time() >= 5, "the first marker was waited for"


@in_virtual_time()
async def test_a_transaction_ends_although_bugs_fail_its_markers_and_its_completion(
    setup: Setup,
) -> None:
    """A task that ended would leave it open until another coordinator takes over."""
    producer = await setup.ready()
    await setup.add(producer, ("orders", 0))
    (shard,) = setup.coordinator._host.active_shards()
    write, complete = setup.markers.write, shard.endings.complete
    bugs = iter([AssertionError("in write")] * 2)
    later_bugs = iter([AssertionError("in complete")] * 2)

    async def failing(markers: Sequence[Marker]) -> list[ErrorCode]:
        for bug in bugs:
            raise bug
        return await write(markers)

    def failing_later(*arguments: Any) -> Decision:
        for bug in later_bugs:
            raise bug
        return complete(*arguments)

    setup.markers.write = failing  # type: ignore[method-assign]
    shard.endings.complete = failing_later  # type: ignore[assignment,method-assign]
    await setup.end(producer, commit=True)
    await asyncio.sleep(60)
    assert setup.state() == "CompleteCommit"
    assert (next(bugs, None), next(later_bugs, None)) == (None, None)
