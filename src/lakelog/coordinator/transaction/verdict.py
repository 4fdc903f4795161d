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


def judge(found: OpenTransaction, known: DescribedTransaction | None) -> Verdict:
    """Return the verdict on an open transaction.

    known: the present state of the transactional id that has the producer id, None if no
        coordinator has such an id.
    """
    if known is None:
        return Verdict.ABORT
    assert known.producer_id == found.producer_id
    if _is_coordinated(found, known):
        return Verdict.COORDINATED
    return Verdict.FENCE if known.producer_epoch <= found.producer_epoch else Verdict.ABORT


def _is_coordinated(found: OpenTransaction, known: DescribedTransaction) -> bool:
    """Return whether the markers of the current transaction end this one, with its outcome."""
    if not any(
        topic.topic == found.topic and found.partition in topic.partitions for topic in known.topics
    ):
        return False
    raised = known.producer_epoch - found.producer_epoch
    # The answer does not say which version of transactions the client uses.
    return is_ended_with(_STATES.get(known.transaction_state), raised, None)
