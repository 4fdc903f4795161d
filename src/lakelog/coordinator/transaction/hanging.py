"""Finds hanging transactions: open in a partition, and unknown to their coordinator (KIP-664).

A power failure truncates logs independently of each other. A partition may lose a marker, or
`__transaction_state` may lose the transaction that a partition's records belong to. No coordinator
would ever end such a transaction: it blocks `read_committed` consumers for ever, and later records
of its producer would be committed or aborted together with it. The broker looks for them when it
starts: the logs have been recovered, no client writes yet, and no marker is in flight.

The coordinator will end a transaction if the partition is in it and its epoch is the one of the
records. Any other is aborted. A marker does so if no producer holds this epoch or a later one.
Otherwise the coordinator aborts it past all epochs in the partitions: the producer believes that it
is its current transaction, is fenced, and cannot commit the rest. The exception are records whose
transaction the coordinator knows to be committed: they are committed.

Later, `judge` decides by the coordinator's answer, which is of a time after the transaction began
in the partition. A transaction begins in a log only with its coordinator's knowledge, and a
coordinator forgets it only when the partition has its marker. So a transaction that is unknown to
the coordinators and still open hangs: records of `__transaction_state`, or a marker, were lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from lakelog.coordinator.transaction.endings import Marker
from lakelog.coordinator.transaction.state import (
    OpenTransaction,
    Transaction,
    TransactionState,
    TransactionVersion,
    last_epoch_of,
)
from lakelog.protocol.transactions import DescribedTransaction

_S = TransactionState


class Owner(NamedTuple):
    """The transactional id that has a producer id, or had it last."""

    transactional_id: str
    transaction: Transaction


@dataclass(slots=True)
class Hanging:
    """How to end hanging transactions.

    Attributes:
        markers: to be written before any other marker.
        fences: transactions that the coordinator has to abort past their epochs, by
            transactional id.
    """

    markers: list[tuple[OpenTransaction, Marker]] = field(default_factory=list)
    fences: dict[str, list[OpenTransaction]] = field(default_factory=dict)


def find_hanging(
    open_txns: Iterable[OpenTransaction], owners: Mapping[int, Owner], *, knows_all: bool
) -> Hanging:
    """Return how to end the hanging transactions among the open ones.

    Args:
        open_txns: open transactions of all partitions.
        owners: by producer id.
        knows_all: whether `owners` is complete. If not, a transaction without an owner stays open.
    """
    hanging = Hanging()
    for open_txn in open_txns:
        owner = owners.get(open_txn.producer_id)
        if owner is None:
            if knows_all:
                hanging.markers.append(
                    (open_txn, end_marker(open_txn, open_txn.producer_epoch, commit=False))
                )
        elif not _is_coordinated(owner.transaction, open_txn):
            _judge(owner, open_txn, hanging)
    return hanging


def _judge(owner: Owner, open_txn: OpenTransaction, hanging: Hanging) -> None:
    transaction = owner.transaction
    is_newest = (
        open_txn.producer_id == transaction.producer_id
        and open_txn.producer_epoch >= transaction.producer_epoch
    )
    if is_newest:
        hanging.fences.setdefault(owner.transactional_id, []).append(open_txn)
    if _was_committed(transaction, open_txn):
        marker = end_marker(open_txn, open_txn.producer_epoch + 1, commit=True)
        hanging.markers.append((open_txn, marker))
    elif not is_newest or transaction.state is _S.PREPARE_COMMIT:
        hanging.markers.append(
            (open_txn, end_marker(open_txn, open_txn.producer_epoch, commit=False))
        )


def _is_coordinated(transaction: Transaction, open_txn: OpenTransaction) -> bool:
    """Return whether the markers of the current transaction end this one, with its outcome."""
    if (
        open_txn.producer_id != transaction.producer_id
        or open_txn.topic_partition not in transaction.partitions
    ):
        return False
    raised = transaction.producer_epoch - open_txn.producer_epoch
    return is_ended_with(transaction.state, raised, transaction.client_version)


def is_ended_with(
    state: TransactionState | None, raised: int, version: TransactionVersion | None
) -> bool:
    """Return whether the markers of a current transaction end one of its partitions' transactions.

    Args:
        state: of the current transaction; None for a state that is not known.
        raised: how many epochs the current one is above that of the partition's records.
        version: of the client; None if it is not known. With `BUMPING` the end of a transaction
            raises the epoch (KIP-890).
    """
    may_bump = version in (TransactionVersion.BUMPING, None)
    may_stay = version is not TransactionVersion.BUMPING
    if state is _S.ONGOING:
        return raised == 0
    if state is _S.PREPARE_COMMIT:
        return (raised == 0 and may_stay) or (raised == 1 and may_bump)
    return state is _S.PREPARE_ABORT and (raised > 0 or (raised == 0 and may_stay))


def _was_committed(transaction: Transaction, open_txn: OpenTransaction) -> bool:
    """Return whether it is the coordinator's last transaction, which was committed.

    With KIP-890 each transaction has its own epoch. Transactions of older clients share one, so
    they cannot be identified.
    """
    last = last_epoch_of(transaction.producer_epoch, transaction.state, transaction.client_version)
    return transaction.state is _S.COMPLETE_COMMIT and open_txn.producer_epoch == last


def end_marker(open_txn: OpenTransaction, epoch: int, *, commit: bool) -> Marker:
    """Return a marker that ends the transaction; a later one of its coordinator stays valid."""
    return Marker(
        *open_txn.topic_partition,
        producer_id=open_txn.producer_id,
        producer_epoch=epoch,
        commit=commit,
        coordinator_epoch=max(open_txn.coordinator_epoch, 0),
        transaction_version=TransactionVersion.CLASSIC,
    )


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
    if _is_current(open_txn, described):
        return Verdict.COORDINATED
    return Verdict.FENCE if described.producer_epoch <= open_txn.producer_epoch else Verdict.ABORT


def _is_current(open_txn: OpenTransaction, described: DescribedTransaction) -> bool:
    """Return whether the markers of the current transaction end this one, with its outcome."""
    if not any(
        topic.topic == open_txn.topic and open_txn.partition in topic.partitions
        for topic in described.topics
    ):
        return False
    raised = described.producer_epoch - open_txn.producer_epoch
    # The answer does not say which version of transactions the client uses.
    return is_ended_with(_STATES.get(described.transaction_state), raised, None)
