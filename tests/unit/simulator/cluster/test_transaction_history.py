"""A transaction that is complete for its coordinator, and open in a replica, is noticed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lakelog.coordinator.transaction.hanging import Owner
from lakelog.coordinator.transaction.state import Transaction, TransactionState
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import PartitionRecord, TopicRecord
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.cluster.stored_batches import BatchRun
from simulator.cluster.transaction_history import TransactionHistory

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

    def broken(self, node_id: int, first_offset: int = 5, watermark: int = 0) -> set[Law]:
        entry = SimpleNamespace(epoch=3, txn_first_offset=first_offset)
        producers = SimpleNamespace(first_unstable_offset=5, entries={7: entry})
        replica: Any = SimpleNamespace(
            log=SimpleNamespace(producers=producers),
            watermark=SimpleNamespace(offset=watermark),
            is_online=True,
            topic="t",
            topic_id=TOPIC,
            index=0,
        )
        image = MetadataImage().apply_all(
            [TopicRecord("t", TOPIC), PartitionRecord(TOPIC, 0, (1, 2, 3), (1, 2), 1, 0, 0)], 1
        )
        self.history.check(BatchRun(node_id, 1), [replica], image, self)
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


class Begun:
    """A transaction that is open from offset 5 on in a replica, and ongoing."""

    def __init__(self, watermark: int = 6) -> None:
        self.world = World(S.ONGOING, 3)
        self.known = replace(
            self.world._owner.transaction, partitions=frozenset({("t", 0)}), start_ms=10
        )
        self.watermark = watermark
        self.check(self.known, first_offset=5)

    def check(self, known: Transaction, first_offset: int) -> set[Law]:
        self.world._owner = Owner("id", known)
        return self.world.broken(1, first_offset, self.watermark)


@pytest.mark.parametrize("first_offset", [-1, 8])
@pytest.mark.parametrize(
    ("changes", "is_early"),
    [
        ({}, True),
        ({"state": S.PREPARE_COMMIT}, False),
        ({"state": S.COMPLETE_COMMIT, "producer_epoch": 2}, False),
        ({"start_ms": 11}, False),
        ({"producer_epoch": 4}, False),
    ],
)
def test_a_transaction_that_ends_before_its_decision_breaks_the_law(
    first_offset: int, changes: dict[str, Any], is_early: bool
) -> None:
    begun = Begun()
    broken = begun.check(replace(begun.known, **changes), first_offset)
    assert (Law.DECIDED in broken) is is_early


def test_records_above_the_watermark_may_vanish() -> None:
    begun = Begun(watermark=5)
    assert begun.check(begun.known, -1) == set()


def test_a_replica_that_may_not_lead_is_behind() -> None:
    assert World(S.COMPLETE_ABORT, 3).broken(3) == set()


def test_a_producer_without_an_open_transaction_keeps_the_law() -> None:
    assert World(S.COMPLETE_ABORT, 3).broken(1, first_offset=-1) == set()
    assert World(S.COMPLETE_ABORT, 3, producer_id=8).broken(1) == set()


def test_after_a_loss_nothing_is_checked() -> None:
    world = World(S.COMPLETE_ABORT, 3)
    world.history.has_lost = True
    assert world.broken(1) == set()
