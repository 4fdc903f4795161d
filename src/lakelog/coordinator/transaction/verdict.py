"""Decides about an open transaction of a partition by what its coordinator answers (KIP-664).

The answer is of a time after the transaction began in the partition. A transaction begins in a log
only with its coordinator's knowledge, and a coordinator forgets it only when the partition has its
marker. So a transaction that the coordinators do not know and that is open still hangs: records of
`__transaction_state`, or a marker, were lost.
"""

from __future__ import annotations

from enum import Enum, auto

from lakelog.coordinator.transaction.hanging import is_ended_with
from lakelog.coordinator.transaction.state import OpenTransaction, TransactionState
from lakelog.protocol.describe_transactions import TransactionState as DescribedTransaction

_STATES = {state.label: state for state in TransactionState}


class Verdict(Enum):
    """The next step for an open transaction."""

    COORDINATED = auto()
    """Nothing: its coordinator ends it, at the latest at its timeout."""
    FENCE = auto()
    """Raise the epoch of its producer, which believes that it is its current transaction: it could
    commit the rest of it. Then ask again."""
    ABORT = auto()
    """Write an abort marker."""


def judge(open_txn: OpenTransaction, described: DescribedTransaction | None) -> Verdict:
    """Return the verdict on an open transaction.

    described: the present state of the transactional id that has the producer id, None if no
        coordinator has such an id.
    """
    if described is None:
        return Verdict.ABORT
    assert described.producer_id == open_txn.producer_id
    if _is_coordinated(open_txn, described):
        return Verdict.COORDINATED
    return Verdict.FENCE if described.producer_epoch <= open_txn.producer_epoch else Verdict.ABORT


def _is_coordinated(open_txn: OpenTransaction, described: DescribedTransaction) -> bool:
    """Return whether the markers of the current transaction end this one, with its outcome."""
    if not any(
        topic.topic == open_txn.topic and open_txn.partition in topic.partitions
        for topic in described.topics
    ):
        return False
    raised = described.producer_epoch - open_txn.producer_epoch
    # The answer does not say which version of transactions the client uses.
    return is_ended_with(_STATES.get(described.transaction_state), raised, None)
