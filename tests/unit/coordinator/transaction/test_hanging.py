"""Which open transactions hang, and how each is ended."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.hanging import Owner, Verdict, find_hanging, judge
from lakelog.coordinator.transaction.state import (
    EPOCH_LAST,
    EPOCH_MAX,
    OpenTransaction,
    Transaction,
    TransactionState,
)
from lakelog.protocol.transactions import DescribedTransaction, TopicData
from transaction_setup import BUMPING, CLASSIC, Producer, Setup, in_virtual_time, run

S = TransactionState
EPOCH = 7
LEFT, ABORT, COMMIT = "left", "abort", "commit"
FENCE, ABORT_AND_FENCE = "fence", "abort and fence"


def an_open(epoch: int, producer_id: int = 1) -> OpenTransaction:
    return OpenTransaction("t", 0, producer_id, epoch, -1, 42)


def ended(state: S, version: int, epoch: int, *, joined: bool, producer_id: int = 1) -> str:
    known = Transaction(
        producer_id=1,
        producer_epoch=EPOCH,
        timeout_ms=1,
        last_update_ms=0,
        state=state,
        partitions=frozenset({("t", 0)} if joined else ()),
        client_version=BUMPING if version == 2 else CLASSIC,
        previous_producer_id=3,
    )
    owners = dict.fromkeys((1, 3), Owner("id", known))
    found = find_hanging([an_open(epoch, producer_id)], owners, knows_all=True)
    how = ["commit" if marker.commit else "abort" for _, marker in found.markers]
    assert all(marker.producer_epoch >= epoch for _, marker in found.markers)
    return " and ".join(how + ["fence"] * len(found.fences)) or LEFT


@pytest.mark.parametrize(
    ("state", "version", "epoch", "joined", "expected"),
    [
        (S.ONGOING, 0, 7, True, LEFT),
        (S.ONGOING, 2, 7, True, LEFT),
        (S.ONGOING, 0, 7, False, FENCE),
        (S.ONGOING, 2, 6, True, ABORT),
        (S.ONGOING, 2, 8, True, FENCE),
        (S.PREPARE_COMMIT, 0, 7, True, LEFT),
        (S.PREPARE_COMMIT, 2, 6, True, LEFT),
        (S.PREPARE_COMMIT, 2, 5, True, ABORT),
        (S.PREPARE_COMMIT, 2, 7, True, ABORT_AND_FENCE),
        (S.PREPARE_COMMIT, 0, 6, True, ABORT),
        (S.PREPARE_COMMIT, 0, 7, False, ABORT_AND_FENCE),
        (S.PREPARE_ABORT, 0, 7, True, LEFT),
        (S.PREPARE_ABORT, 0, 6, True, LEFT),
        (S.PREPARE_ABORT, 2, 5, True, LEFT),
        (S.PREPARE_ABORT, 2, 7, True, FENCE),
        (S.PREPARE_ABORT, 2, 6, False, ABORT),
        (S.COMPLETE_COMMIT, 2, 6, False, COMMIT),
        (S.COMPLETE_COMMIT, 2, 5, False, ABORT),
        (S.COMPLETE_COMMIT, 2, 7, False, FENCE),
        (S.COMPLETE_COMMIT, 0, 6, False, ABORT),
        (S.COMPLETE_COMMIT, 0, 7, False, FENCE),
        (S.COMPLETE_ABORT, 2, 6, False, ABORT),
        (S.EMPTY, 0, 7, False, FENCE),
        (S.EMPTY, 0, 6, False, ABORT),
        (S.EMPTY, 0, 9, False, FENCE),
    ],
)
def test_hanging_transactions_are_found_and_ended(
    state: S, version: int, epoch: int, joined: bool, expected: str
) -> None:
    assert ended(state, version, epoch, joined=joined) == expected


def test_a_producer_id_that_was_replaced_has_no_transaction_but_its_last() -> None:
    assert ended(S.COMPLETE_COMMIT, 2, 6, joined=False, producer_id=3) == COMMIT
    assert ended(S.COMPLETE_ABORT, 2, 6, joined=False, producer_id=3) == ABORT
    assert ended(S.ONGOING, 2, 7, joined=True, producer_id=3) == ABORT


@pytest.mark.parametrize("knows_all", [True, False])
def test_a_producer_without_an_owner_stays_while_owners_are_incomplete(knows_all: bool) -> None:
    found = find_hanging([an_open(4)], {}, knows_all=knows_all)
    epochs = [(marker.producer_epoch, marker.commit) for _, marker in found.markers]
    assert epochs == ([(4, False)] if knows_all else [])


def test_the_last_epoch_of_a_producer_id_was_committed_with_it() -> None:
    """Its coordinator continues with another producer id, at epoch 0."""
    known = Transaction(
        producer_id=1,
        producer_epoch=0,
        timeout_ms=1,
        last_update_ms=0,
        state=S.COMPLETE_COMMIT,
        client_version=BUMPING,
        previous_producer_id=3,
    )
    hangs = [an_open(EPOCH_LAST, 3)]
    found = find_hanging(hangs, {3: Owner("id", known)}, knows_all=True)
    told = [(marker.producer_epoch, marker.commit) for _, marker in found.markers]
    assert told == [(EPOCH_MAX, True)]


async def begun(setup: Setup, *, at: int = 0) -> Producer:
    """Return a producer whose transaction is open in partition `at`, unknown to the coordinator."""
    producer = await setup.ready()
    setup.markers.partition("orders", at).append(producer, "unknown")
    return producer


def hanging(producer: Producer, partition: int = 0) -> list[OpenTransaction]:
    return [OpenTransaction("orders", partition, *producer, -1, 0)]


@in_virtual_time()
async def test_its_producer_is_fenced_and_cannot_commit_the_rest(setup: Setup) -> None:
    producer = await begun(setup)
    setup.coordinator.fence("t", hanging(producer))
    await asyncio.sleep(1)
    assert setup.state() == "CompleteAbort"
    assert setup.markers.partition("orders", 0).fates == [False]
    assert await setup.add(producer, ("orders", 1)) == ErrorCode.PRODUCER_FENCED
    assert (await setup.end(producer, commit=True)).code == ErrorCode.PRODUCER_FENCED
    assert (await setup.ready()).epoch > producer.epoch


@in_virtual_time()
async def test_known_partitions_of_the_transaction_are_aborted_too(setup: Setup) -> None:
    producer = await begun(setup)
    await setup.add(producer, ("orders", 1))
    setup.markers.partition("orders", 1).append(producer, "known")
    later = Producer(producer.producer_id, 5)
    setup.markers.partition("orders", 0).append(later, "of an epoch that is lost")
    setup.coordinator.fence("t", hanging(later))
    assert await setup.settled() == "CompleteAbort"
    assert setup.markers.partition("orders", 0).fates == [False, False]
    assert setup.markers.partition("orders", 1).fates == [False]
    assert setup.identity().epoch == 7


@in_virtual_time()
async def test_a_commit_that_is_decided_remains_one(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, ("orders", 1))
    setup.markers.partition("orders", 1).append(producer, "kept")
    setup.coordinator.hold_markers()
    await setup.end(producer, commit=True)
    setup.coordinator.fence("t", hanging(producer))
    assert setup.markers.written == [], "until what hangs has its marker"
    setup.coordinator.release_markers()
    await asyncio.sleep(5)
    assert [(each.partition, each.commit) for each in setup.markers.written] == [
        (1, True),
        (0, False),
    ]
    assert setup.markers.partition("orders", 1).visible == ["kept"]
    assert setup.state() == "CompleteAbort"
    assert await setup.add(producer) == ErrorCode.PRODUCER_FENCED


@in_virtual_time()
async def test_a_commit_that_is_decided_is_known_at_another_start_too(
    setup: Setup,
) -> None:
    """The broker may restart before the partitions of the commit have their markers."""
    producer = await setup.ready()
    await setup.add(producer, ("orders", 1), version=BUMPING)
    setup.coordinator.hold_markers()
    answer = await setup.end(producer, commit=True, version=BUMPING)
    later = Producer(answer.producer_id, answer.producer_epoch)
    setup.coordinator.fence("t", hanging(later))
    await asyncio.sleep(5)
    await setup.restart()
    found = find_hanging(hanging(producer, 1), setup.coordinator.owners(), knows_all=True)
    assert (found.markers, found.fences) == ([], {})


@in_virtual_time()
async def test_a_transaction_is_not_complete_before_all_its_partitions_are_known(
    setup: Setup,
) -> None:
    """The record of the fence may be slower than the markers of an ending transaction."""
    producer = await setup.ready()
    await setup.add(producer, ("orders", 1))
    setup.markers.partition("orders", 1).append(producer, "known")
    setup.coordinator.hold_markers()
    await setup.end(producer, commit=False)
    hangs = Producer(producer.producer_id, 5)
    setup.markers.partition("orders", 0).append(hangs, "of an epoch that is lost")
    setup.log.delay_s = lambda: 1.0
    setup.coordinator.fence("t", hanging(hangs))
    setup.coordinator.release_markers()
    await asyncio.sleep(10)
    assert setup.state() == "CompleteAbort"
    assert setup.markers.partition("orders", 0).fates == [False]
    assert setup.markers.partition("orders", 1).fates == [False]
    assert setup.identity().epoch == 7


@pytest.mark.parametrize("fate", ["refused", "lost", "kept"])
def test_a_fence_that_cannot_be_written_is_retried(fate: str) -> None:
    async def scenario(setup: Setup) -> None:
        producer = await begun(setup)
        await setup.add(producer, ("orders", 1))
        setup.markers.partition("orders", 1).append(producer, "known")
        later = Producer(producer.producer_id, 5)
        setup.markers.partition("orders", 0).append(later, "of an epoch that is lost")
        setup.log.fate = lambda: fate
        setup.coordinator.fence("t", hanging(later))
        await asyncio.sleep(300)
        assert setup.log.appends < 50, "each may have the whole log loaded"
        setup.log.fate = lambda: "ok"
        assert (await setup.ready()).epoch > later.epoch
        assert setup.markers.partition("orders", 0).fates == [False, False]
        assert setup.markers.partition("orders", 1).fates == [False]

    run(scenario)


@in_virtual_time()
async def test_no_producer_continues_before_the_fence_is_written(setup: Setup) -> None:
    producer = await begun(setup)
    await setup.add(producer, ("orders", 1))
    setup.log.fate = lambda: "refused"
    setup.coordinator.fence("t", hanging(producer))
    await asyncio.sleep(5)
    setup.log.fate = lambda: "ok"
    assert await setup.add(producer, ("orders", 0)) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert (await setup.end(producer, commit=True)).code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert (await setup.init()).code == ErrorCode.CONCURRENT_TRANSACTIONS
    await asyncio.sleep(10)
    assert (await setup.end(producer, commit=True)).code == ErrorCode.PRODUCER_FENCED
    assert setup.markers.partition("orders", 0).fates == [False]


@pytest.mark.long
@in_virtual_time()
async def test_a_commit_that_is_decided_waits_for_it(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, ("orders", 1))
    setup.markers.partition("orders", 1).append(producer, "kept")
    setup.coordinator.hold_markers()
    await setup.end(producer, commit=True)
    setup.log.fate = lambda: "lost"
    setup.coordinator.fence("t", hanging(producer))
    setup.coordinator.release_markers()
    await asyncio.sleep(60)
    assert setup.state() == "PrepareCommit"
    setup.log.fate = lambda: "ok"
    await asyncio.sleep(20)
    assert setup.state() == "CompleteAbort"
    assert setup.markers.partition("orders", 1).visible == ["kept"]
    assert await setup.add(producer) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("decided", [True, False])
def test_the_end_of_a_hanging_transaction_is_no_repetition(decided: bool, commit: bool) -> None:
    """A power failure has removed the producer's next transaction from the coordinator's log."""

    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        producer = await setup.ready()
        await setup.add(producer, ("orders", 1), version=BUMPING)
        setup.coordinator.hold_markers()
        answer = await setup.end(producer, commit=decided, version=BUMPING)
        later = Producer(answer.producer_id, answer.producer_epoch)
        setup.markers.partition("orders", 1).append(producer, "decided")
        setup.markers.partition("orders", 0).append(later, "of a transaction that is lost")
        setup.coordinator.fence("t", hanging(later))
        setup.coordinator.release_markers()
        await asyncio.sleep(5)
        assert setup.state() == "CompleteAbort"
        assert setup.markers.partition("orders", 1).fates == [decided]
        assert setup.markers.partition("orders", 0).fates == [False]
        told = await setup.end(later, commit=commit, version=BUMPING)
        assert told.code == ErrorCode.PRODUCER_FENCED

    scenario()


@in_virtual_time()
async def test_an_abort_is_not_complete_while_what_hangs_could_not_be_written(
    setup: Setup,
) -> None:
    """Its known partitions get their markers first."""
    producer = await setup.ready()
    await setup.add(producer, ("orders", 1))
    setup.markers.partition("orders", 1).append(producer, "known")
    setup.coordinator.hold_markers()
    await setup.end(producer, commit=False)
    hangs = Producer(producer.producer_id, 5)
    lost = setup.markers.partition("orders", 0)
    lost.append(hangs, "of an epoch that is lost")
    setup.log.delay_s = lambda: 1.0
    fates = iter(["refused"])
    setup.log.fate = lambda: next(fates, "ok")
    setup.coordinator.fence("t", hanging(hangs))
    setup.coordinator.release_markers()
    states = set()
    while lost.fates == [None]:
        states.add(setup.state())
        await asyncio.sleep(0.1)
    assert states == {"PrepareAbort"}
    assert setup.markers.partition("orders", 1).fates == [False]
    assert await setup.settled() == "CompleteAbort"


FOUND = OpenTransaction("orders", 1, 7, 5, -1, 40)


def known(state: str, epoch: int, *partitions: int) -> DescribedTransaction:
    return DescribedTransaction(
        transactional_id="id",
        transaction_state=state,
        producer_id=7,
        producer_epoch=epoch,
        topics=[TopicData(topic="orders", partitions=list(partitions))],
    )


def test_without_a_transactional_id_it_is_aborted() -> None:
    assert judge(FOUND, None) is Verdict.ABORT


@pytest.mark.parametrize(
    ("state", "epoch"),
    [
        ("Ongoing", 5),
        ("PrepareCommit", 5),
        ("PrepareCommit", 6),
        ("PrepareAbort", 5),
        ("PrepareAbort", 9),
    ],
)
def test_the_coordinator_ends_its_current_transaction(state: str, epoch: int) -> None:
    assert judge(FOUND, known(state, epoch, 0, 1)) is Verdict.COORDINATED


@pytest.mark.parametrize(
    ("state", "epoch"),
    [("Ongoing", 6), ("PrepareCommit", 7), ("CompleteCommit", 6), ("CompleteAbort", 6)],
)
def test_an_earlier_transaction_is_aborted(state: str, epoch: int) -> None:
    """A marker that commits the current transaction would commit the earlier one, too."""
    assert judge(FOUND, known(state, epoch, 0, 1)) is Verdict.ABORT


@pytest.mark.parametrize(
    ("state", "epoch", "partitions"),
    [
        ("Empty", 5, ()),
        ("CompleteCommit", 5, ()),
        ("Ongoing", 5, (0,)),
        ("Ongoing", 4, (0, 1)),
        ("PrepareAbort", 4, (0, 1)),
    ],
)
def test_a_producer_that_can_commit_the_rest_is_fenced(
    state: str, epoch: int, partitions: tuple[int, ...]
) -> None:
    assert judge(FOUND, known(state, epoch, *partitions)) is Verdict.FENCE
