"""The coordinator's answer decides what becomes of a transaction that is open in a partition."""

from __future__ import annotations

import pytest

from lakelog.coordinator.transaction.state import OpenTransaction
from lakelog.coordinator.transaction.verdict import Verdict, judge
from lakelog.protocol.describe_transactions import TopicData, TransactionState

FOUND = OpenTransaction("orders", 1, 7, 5, -1, 40)


def known(state: str, epoch: int, *partitions: int) -> TransactionState:
    return TransactionState(
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
