"""Producer ids: assigned once, and kept by their transactional ids."""

from __future__ import annotations

import pytest

from lakelog.coordinator.transaction import state
from simulator.checkers.producer_ids import ProducerIds
from simulator.conditions import Conditions
from simulator.engine.loop import SimulatedLoop


def producer_ids(*faults: str) -> tuple[ProducerIds, Conditions]:
    loop = SimulatedLoop(None)
    conditions = Conditions(loop)
    loop.close()
    return ProducerIds(conditions, faults), conditions


def test_an_id_and_epoch_are_new_once_for_each_broker() -> None:
    ids, _ = producer_ids()
    assert ids.is_new("broker-1", 7, 0)
    assert ids.is_new("broker-1", 7, 1)
    assert ids.is_new("broker-2", 7, 0)
    assert not ids.is_new("broker-1", 7, 0)


def test_a_transactional_id_keeps_its_producer_id() -> None:
    ids, _ = producer_ids()
    assert ids.may_have("broker-1", "t", 7, 1.0)
    assert ids.may_have("broker-1", "t", 7, 2.0)
    assert not ids.may_have("broker-1", "t", 8, 3.0)
    assert ids.may_have("broker-1", "other", 9, 3.0)


@pytest.mark.parametrize(("lost_at", "allowed"), [(1.5, False), (2.0, True)])
def test_another_id_is_allowed_after_a_loss(lost_at: float, allowed: bool) -> None:
    ids, _ = producer_ids()
    ids.may_have("broker-1", "t", 7, 2.0)
    ids.note_loss("broker-1", lost_at)
    ids.note_loss("broker-2", 99.0)
    assert ids.may_have("broker-1", "t", 8, 3.0) is allowed


def test_another_id_is_allowed_after_a_leap_or_a_cut_or_with_a_losing_fault() -> None:
    for name in ("leapt_at", "cut_at"):
        ids, conditions = producer_ids()
        ids.may_have("broker-1", "t", 7, 2.0)
        setattr(conditions, name, 2.5)
        assert ids.may_have("broker-1", "t", 8, 3.0)
    ids, _ = producer_ids("disk full")
    ids.may_have("broker-1", "t", 7, 2.0)
    assert ids.may_have("broker-1", "t", 8, 3.0)


def test_another_id_is_allowed_when_epochs_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, _ = producer_ids()
    ids.may_have("broker-1", "t", 7, 2.0)
    monkeypatch.setattr(state, "EPOCH_LAST", 5)
    assert ids.may_have("broker-1", "t", 8, 3.0)
