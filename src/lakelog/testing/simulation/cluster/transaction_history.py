"""Completed transactions: each replica that may lead has the markers of its partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from lakelog.coordinator.transaction.hanging import Owner
from lakelog.coordinator.transaction.state import Transaction, TransactionState
from lakelog.metadata.image import MetadataImage
from lakelog.replica.partition import Partition
from lakelog.testing.simulation.checkers.findings import Findings
from lakelog.testing.simulation.checkers.laws import Law
from lakelog.testing.simulation.cluster.replica_history import Run


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
        self.has_lost = False

    def check(
        self, run: Run, partitions: Iterable[Partition], image: MetadataImage, owners: Owners
    ) -> None:
        """Check the replicas of a running broker; `image` is the newest one of any broker."""
        if self.has_lost:
            return
        for partition in partitions:
            producers = partition.log.producers
            if not partition.is_online or producers.first_unstable_offset < 0:
                continue
            state = image.partition(partition.topic_id, partition.index)
            if state is None or run.node_id not in (*state.isr, *state.elr):
                continue
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


def _is_over(known: Transaction, producer_id: int, epoch: int) -> bool:
    """Return whether a producer has no open transaction of this epoch any more."""
    if known.producer_id != producer_id or known.state.is_ending:
        return False  # of an exhausted producer id, or its markers are being written
    if known.state is TransactionState.ONGOING:
        return known.producer_epoch > epoch
    return known.producer_epoch >= epoch
