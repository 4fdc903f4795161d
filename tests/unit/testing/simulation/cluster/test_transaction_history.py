"""A transaction that is complete for its coordinator, and open in a replica, is noticed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakelog.coordinator.transaction.hanging import Owner
from lakelog.coordinator.transaction.state import Transaction, TransactionState
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import PartitionRecord, TopicRecord
from lakelog.testing.simulation.checkers.findings import Findings
from lakelog.testing.simulation.checkers.laws import Law
from lakelog.testing.simulation.cluster.replica_history import Run
from lakelog.testing.simulation.cluster.transaction_history import TransactionHistory

S = TransactionState
TOPIC = b"t" * 16


class World:
    """Replicas of one partition on the brokers 1 and 2; broker 3 has left the ISR."""

    def __init__(self, state: TransactionState, epoch: int, producer_id: int = 7) -> None:
        self.findings = Findings()
        self.history = TransactionHistory(self.findings)
        found = Transaction(
            producer_id=producer_id,
            producer_epoch=epoch,
            timeout_ms=1,
            state=state,
            last_update_ms=1,
        )
        self._owner = Owner("id", found)

    def owner(self, producer_id: int) -> Owner | None:
        return self._owner

    def broken(self, node_id: int, first_offset: int = 5) -> set[Law]:
        entry = SimpleNamespace(epoch=3, txn_first_offset=first_offset)
        producers = SimpleNamespace(first_unstable_offset=5, entries={7: entry})
        replica: Any = SimpleNamespace(
            log=SimpleNamespace(producers=producers),
            is_online=True,
            topic="t",
            topic_id=TOPIC,
            index=0,
        )
        image = MetadataImage().apply_all(
            [TopicRecord("t", TOPIC), PartitionRecord(TOPIC, 0, (1, 2, 3), (1, 2), 1, 0, 0)], 1
        )
        self.history.check(Run(node_id, 1), [replica], image, self)
        return set(self.findings.broken)


@pytest.mark.parametrize(
    ("state", "epoch", "is_over"),
    [
        (S.COMPLETE_ABORT, 3, True),
        (S.COMPLETE_COMMIT, 4, True),
        (S.EMPTY, 4, True),
        (S.ONGOING, 4, True),
        (S.ONGOING, 3, False),
        (S.PREPARE_ABORT, 4, False),
        (S.PREPARE_COMMIT, 3, False),
        (S.COMPLETE_ABORT, 2, False),
    ],
)
def test_an_open_transaction_that_is_over_breaks_the_law(
    state: TransactionState, epoch: int, is_over: bool
) -> None:
    assert World(state, epoch).broken(2) == ({Law.MARKED} if is_over else set())


def test_a_replica_that_may_not_lead_is_behind() -> None:
    assert World(S.COMPLETE_ABORT, 3).broken(3) == set()


def test_a_producer_without_an_open_transaction_keeps_the_law() -> None:
    assert World(S.COMPLETE_ABORT, 3).broken(1, first_offset=-1) == set()
    assert World(S.COMPLETE_ABORT, 3, producer_id=8).broken(1) == set()


def test_after_a_loss_nothing_is_checked() -> None:
    world = World(S.COMPLETE_ABORT, 3)
    world.history.has_lost = True
    assert world.broken(1) == set()
