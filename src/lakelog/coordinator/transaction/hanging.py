"""Which open transactions of partitions nobody will ever end, and how they are to be ended.

A power failure takes the ends of logs, each for itself: a partition may have lost a marker, or
`__transaction_state` the transaction that the partition's records are of. Such a transaction hangs
(KIP-664): it holds `read_committed` back for ever, and what its producer writes later would share
its fate with it. A start is the moment to tell: the logs are whole, nobody writes yet, and no
marker is on its way.

A transaction is its coordinator's if the partition is in it and the epoch is the one that its
records have. Any other is aborted: by a marker, if nobody who holds a later epoch is concerned;
else by its coordinator, past all epochs that partitions have seen, so that its producer, who
takes it for his present one, is told and cannot commit the rest. The one exception is what its
coordinator knows to be committed, which is then committed here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lakelog.coordinator.transaction.markers import Marker
from lakelog.coordinator.transaction.state import (
    TopicPartition,
    Transaction,
    TransactionState,
    TransactionVersion,
    last_epoch_of,
)

_S = TransactionState


class OpenTransaction(NamedTuple):
    """As a partition's log has it. Without a marker of its producer the coordinator epoch is -1."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


class Owner(NamedTuple):
    """The transactional id that a producer id belongs to, or belonged to last."""

    transactional_id: str
    transaction: Transaction


@dataclass(slots=True)
class Hanging:
    """`markers` are to be written before any other; the coordinator is to end what is of `fences`,
    by transactional id, past the epochs there."""

    markers: list[tuple[OpenTransaction, Marker]] = field(default_factory=list)
    fences: dict[str, list[OpenTransaction]] = field(default_factory=dict)


def find_hanging(
    found: Iterable[OpenTransaction], owners: Mapping[int, Owner], *, knows_all: bool
) -> Hanging:
    """`owners` by producer id. Unless it `knows_all` there are, others may have an owner too."""
    hanging = Hanging()
    for each in found:
        owner = owners.get(each.producer_id)
        if owner is None:
            if knows_all:
                hanging.markers.append((each, _marker(each, each.producer_epoch, commit=False)))
        elif not _is_coordinated(owner.transaction, each):
            _judge(owner, each, hanging)
    return hanging


def _judge(owner: Owner, found: OpenTransaction, hanging: Hanging) -> None:
    known = owner.transaction
    is_newest = (
        found.producer_id == known.producer_id and found.producer_epoch >= known.producer_epoch
    )
    if is_newest:
        hanging.fences.setdefault(owner.transactional_id, []).append(found)
    if _was_committed(known, found):
        marker = _marker(found, found.producer_epoch + 1, commit=True)
        hanging.markers.append((found, marker))
    elif not is_newest or known.state is _S.PREPARE_COMMIT:
        hanging.markers.append((found, _marker(found, found.producer_epoch, commit=False)))


def _is_coordinated(known: Transaction, found: OpenTransaction) -> bool:
    """Whether the marker of the present transaction will end this one, and rightly so."""
    if found.producer_id != known.producer_id or found.place not in known.partitions:
        return False
    epoch, present = found.producer_epoch, known.producer_epoch
    is_bumping = known.client_version is TransactionVersion.BUMPING
    if known.state is _S.PREPARE_ABORT:
        return epoch < present or (epoch == present and not is_bumping)
    if known.state is _S.PREPARE_COMMIT and is_bumping:
        return epoch == present - 1
    return known.state in (_S.ONGOING, _S.PREPARE_COMMIT) and epoch == present


def _was_committed(known: Transaction, found: OpenTransaction) -> bool:
    """With KIP-890 an epoch is of one transaction. An older client's may be of any that it had."""
    last = last_epoch_of(known.producer_epoch, known.state, known.client_version)
    return known.state is _S.COMPLETE_COMMIT and found.producer_epoch == last


def _marker(found: OpenTransaction, epoch: int, *, commit: bool) -> Marker:
    return Marker(
        *found.place,
        producer_id=found.producer_id,
        producer_epoch=epoch,
        commit=commit,
        coordinator_epoch=max(found.coordinator_epoch, 0),
        transaction_version=TransactionVersion.CLASSIC,
    )
