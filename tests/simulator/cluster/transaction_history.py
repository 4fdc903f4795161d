"""Transactions in replicas that may lead, beside the decisions of their coordinators.

A completed transaction has its marker in each; an ongoing one has none in any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from lakelog.coordinator.transaction.hanging import Owner
from lakelog.coordinator.transaction.state import Transaction, TransactionState
from lakelog.metadata.image import MetadataImage
from lakelog.replica.partition import Partition
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.cluster.stored_batches import BatchRun


class Owners(Protocol):
    """The transactions that the coordinators of all brokers know."""

    def owner(self, producer_id: int) -> Owner | None:
        """Return the owner of a producer id as its present coordinator knows it."""


class TransactionHistory:
    """Checks the open transactions in replicas against their coordinators.

    A power failure takes markers and records independently: after one nothing is checked.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._ongoing: dict[_Replica, list[_Ongoing]] = {}
        """Those open and committed at the last check."""
        self.has_lost = False

    def check(
        self, run: BatchRun, partitions: Iterable[Partition], image: MetadataImage, owners: Owners
    ) -> None:
        """Check the replicas of a running broker; `image` is the newest one of any broker."""
        if self.has_lost:
            return
        for partition in partitions:
            producers = partition.log.producers
            replica = run, partition.topic_id, partition.index
            before = self._ongoing.pop(replica, [])
            if not partition.is_online or (producers.first_unstable_offset < 0 and not before):
                continue
            state = image.partition(partition.topic_id, partition.index)
            if state is None or run.node_id not in (*state.isr, *state.elr):
                continue
            self._check_decided(run, partition, before, owners)
            self._ongoing[replica] = list(_ongoing(partition, owners))
            for producer_id, entry in producers.entries.items():
                if entry.txn_first_offset < 0:
                    continue
                owner = owners.owner(producer_id)
                self._findings.expect(
                    Law.MARKED,
                    owner is None or not _is_over(owner.transaction, producer_id, entry.epoch),
                    f"{partition.topic}-{partition.index} on broker {run.node_id} has an open "
                    f"transaction of producer {producer_id} in epoch {entry.epoch}; its "
                    f"coordinator: {owner}",
                )

    def _check_decided(
        self, run: BatchRun, partition: Partition, before: Iterable[_Ongoing], owners: Owners
    ) -> None:
        entries = partition.log.producers.entries
        for each in before:
            producer_id = each.transaction.producer_id
            entry = entries.get(producer_id)
            if entry is not None and entry.txn_first_offset == each.first_offset:
                continue
            owner = owners.owner(producer_id)
            self._findings.expect(
                Law.DECIDED,
                owner is None or not _is_same(owner.transaction, each.transaction),
                f"{partition.topic}-{partition.index} on broker {run.node_id} has ended the "
                f"transaction of producer {producer_id} from offset {each.first_offset}; its "
                f"coordinator: {owner}",
            )


class _Ongoing(NamedTuple):
    first_offset: int
    transaction: Transaction


_Replica = tuple[BatchRun, bytes, int]


def _ongoing(partition: Partition, owners: Owners) -> Iterator[_Ongoing]:
    """Yield the open transactions that began below the high watermark, and are not decided."""
    for producer_id, entry in partition.log.producers.entries.items():
        if not 0 <= entry.txn_first_offset < partition.watermark.offset:
            continue
        owner = owners.owner(producer_id)
        known = None if owner is None else owner.transaction
        if (
            known is not None
            and known.state is TransactionState.ONGOING
            and (known.producer_id, known.producer_epoch) == (producer_id, entry.epoch)
            and (partition.topic, partition.index) in known.partitions
        ):
            yield _Ongoing(entry.txn_first_offset, known)


def _is_same(known: Transaction, begun: Transaction) -> bool:
    """Return whether the coordinator has not decided on the transaction yet."""
    return (
        known.state is TransactionState.ONGOING
        and (known.producer_id, known.producer_epoch) == (begun.producer_id, begun.producer_epoch)
        and known.start_ms == begun.start_ms
    )


def _is_over(known: Transaction, producer_id: int, epoch: int) -> bool:
    """Return whether a producer has no open transaction of this epoch any more."""
    if known.producer_id != producer_id or known.state.is_ending:
        return False  # of an exhausted producer id, or its markers are being written
    if known.state is TransactionState.ONGOING:
        return known.producer_epoch > epoch
    return known.producer_epoch >= epoch
