"""A marker of the previous transaction does not keep its producer's next one from beginning."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.storage.producers.state import ProducerStateTable
from simulation.early_verification import run_early_verifications
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


def test_the_next_transaction_begins_although_its_verification_is_older_than_the_marker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting: list[tuple[int, int]] = []
    refused: list[str] = []
    end, admit = ProducerStateTable.end_transaction, ProducerStateTable.admit

    def note_waiting(self: ProducerStateTable, header: Any, *rest: Any, **named: Any) -> None:
        held = self.verifications.held.get(header.producer_id)
        if held is not None and held.epoch == header.producer_epoch:
            waiting.append((header.producer_id, held.epoch))
        end(self, header, *rest, **named)

    def note_refused(self: ProducerStateTable, *arguments: Any) -> Any:
        try:
            return admit(self, *arguments)
        except KafkaError as error:
            if error.code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.NOT_ENOUGH_REPLICAS):
                refused.append(error.message)
            raise

    monkeypatch.setattr(ProducerStateTable, "end_transaction", note_waiting)
    monkeypatch.setattr(ProducerStateTable, "admit", note_refused)
    monkeypatch.setattr(ClusterNemesis, "_cut_store", run_early_verifications)
    plan = ClusterPlan(10.0, frozenset({"transactions"}), frozenset({"cut store"}))
    for seed in range(1, 12):
        assert run_world(ClusterWorld(seed, plan)).violations == ()
        if waiting:
            assert not refused, f"seed {seed}"
            return
    raise AssertionError("no verification was waiting when a marker was written")
