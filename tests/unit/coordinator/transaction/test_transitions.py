from __future__ import annotations

from dataclasses import replace

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.state import (
    EPOCH_LAST,
    EPOCH_MAX,
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
    TransactionVersion,
)
from lakelog.coordinator.transaction.transitions import (
    End,
    Ended,
    Known,
    Producer,
    completed,
    ended,
    fenced,
    with_partitions,
)

A, B = ("orders", 0), ("orders", 1)
HELD = Producer(7, 3)
ONGOING = Transaction(
    producer_id=7,
    producer_epoch=3,
    timeout_ms=1000,
    state=TransactionState.ONGOING,
    partitions=frozenset([A]),
    start_ms=10,
    last_update_ms=10,
    client_version=TransactionVersion.BUMPING,
    previous_producer_id=7,
)
PREPARED = replace(ONGOING, state=TransactionState.PREPARE_COMMIT)


def _known(current: Transaction | None, *, is_complete: bool = True, is_old: bool = False) -> Known:
    return Known(current, is_complete, is_old)


def _ended(
    known: Known,
    producer: Producer = HELD,
    version: TransactionVersion = TransactionVersion.BUMPING,
    next_id: int = NO_PRODUCER_ID,
    *,
    commit: bool = True,
) -> Ended:
    return ended(known, End(producer, commit, version), 20, next_id)


def _code(known: Known, producer: Producer = HELD, *, commit: bool = True) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        _ended(known, producer, commit=commit)
    return raised.value.code


def test_the_end_returns_the_identity_of_the_next_transaction_at_once() -> None:
    step, producer = _ended(_known(ONGOING))
    assert step is not None
    assert (step.state, step.producer_epoch) == (TransactionState.PREPARE_COMMIT, 4)
    after = completed(step, 30)
    assert producer == (after.producer_id, after.producer_epoch) == (7, 4)


def test_an_older_client_keeps_its_epoch() -> None:
    step, producer = _ended(_known(ONGOING), version=TransactionVersion.CLASSIC)
    assert step is not None
    assert producer == HELD
    assert step.producer_epoch == HELD.epoch


@pytest.mark.parametrize("is_old", [False, True])
def test_without_a_further_epoch_the_end_needs_a_producer_id(is_old: bool) -> None:
    current = ONGOING if is_old else replace(ONGOING, producer_epoch=EPOCH_LAST)
    held = Producer(7, current.producer_epoch)
    known = _known(current, is_old=is_old)
    assert _ended(known, held) == Ended()
    step, producer = _ended(known, held, next_id=9)
    assert step is not None
    assert producer == (9, 4 if is_old else 0)
    assert (step.producer_id, step.next_producer_id) == (7, 9)


def test_a_repeated_end_is_answered_again_and_writes_nothing() -> None:
    step, producer = _ended(_known(ONGOING))
    assert step is not None
    after = completed(step, 30)
    assert _ended(_known(after)) == Ended(None, producer)
    assert _code(_known(after), commit=False) == ErrorCode.INVALID_TXN_STATE
    assert _code(_known(step)) == ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_producer_without_the_id_learns_so_before_it_learns_of_a_step_in_progress() -> None:
    """Otherwise a fenced producer would retry until the step is committed."""
    busy = _known(ONGOING, is_complete=False)
    assert _code(busy) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert _code(busy, Producer(7, 1)) == ErrorCode.PRODUCER_FENCED
    assert _code(busy, Producer(8, 3)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert _code(_known(None)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_producer_fenced_at_the_highest_epoch_does_not_pass_for_a_retry() -> None:
    last = replace(ONGOING, producer_epoch=EPOCH_LAST)
    aborting = fenced(last, 20)
    assert aborting.producer_epoch == EPOCH_MAX
    assert _code(_known(aborting), Producer(7, EPOCH_LAST)) == ErrorCode.PRODUCER_FENCED


def _added(known: Known, *partitions: tuple[str, int]) -> Transaction:
    return with_partitions(known, HELD, partitions, TransactionVersion.BUMPING, 50)


def test_the_first_partitions_begin_a_transaction_and_others_join_it() -> None:
    idle = replace(ONGOING, state=TransactionState.EMPTY, partitions=frozenset(), start_ms=-1)
    begun = _added(_known(idle), A)
    assert (begun.state, begun.start_ms) == (TransactionState.ONGOING, 50)
    grown = _added(_known(ONGOING), A, B)
    assert (grown.partitions, grown.start_ms) == (frozenset([A, B]), 10)


def test_partitions_that_are_there_change_nothing() -> None:
    assert _added(_known(ONGOING), A) is ONGOING


@pytest.mark.parametrize("known", [_known(PREPARED), _known(ONGOING, is_complete=False)])
def test_no_partition_joins_while_the_id_changes(known: Known) -> None:
    with pytest.raises(KafkaError) as raised:
        _added(known, B)
    assert raised.value.code == ErrorCode.CONCURRENT_TRANSACTIONS
