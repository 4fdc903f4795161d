"""Fates of transactions, and offsets hidden by damage."""

from __future__ import annotations

import pytest

from simulator.checkers.observations import Fate, HiddenRange, PartitionHistory, Transaction


@pytest.mark.parametrize(
    ("fate", "must_be_hidden", "must_be_visible"),
    [
        (Fate.OPEN, True, False),
        (Fate.ABORTED, True, False),
        (Fate.COMMITTING, False, False),
        (Fate.COMMITTED, False, True),
    ],
)
def test_an_unknown_outcome_requires_nothing(
    fate: Fate, must_be_hidden: bool, must_be_visible: bool
) -> None:
    transaction = Transaction("t", fate)
    assert transaction.is_open_or_aborted is must_be_hidden
    assert transaction.is_committed is must_be_visible


@pytest.mark.parametrize("fate", list(Fate))
def test_a_torn_transaction_requires_nothing(fate: Fate) -> None:
    transaction = Transaction("t", fate, torn=True)
    assert not transaction.is_open_or_aborted
    assert not transaction.is_committed


@pytest.mark.parametrize(("offset", "hidden"), [(3, False), (4, True), (8, True), (9, False)])
def test_a_hidden_range_ends_before_its_end(offset: int, hidden: bool) -> None:
    partition = PartitionHistory(hidden=[HiddenRange(4, 6, 9), HiddenRange(20, 20, 21)])
    assert partition.is_hidden(offset) is hidden


def test_partitions_share_no_state() -> None:
    first, second = PartitionHistory(), PartitionHistory()
    first.values[0] = b"a"
    first.hidden.append(HiddenRange(0, 0, 1))
    assert not second.values
    assert not second.is_hidden(0)
