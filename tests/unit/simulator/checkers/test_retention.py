"""Records that retention deletes too early."""

from __future__ import annotations

import pytest

from simulator.checkers.findings import Findings
from simulator.checkers.record_history import RecordHistory
from simulator.checkers.retention import Retention

PLACE = ("events", 0)
NOW_S = 10.0


@pytest.fixture
def history() -> RecordHistory:
    """A record of 4 s before now at offset 0, and one of 1 s before now at offset 1."""
    history = RecordHistory(Findings())
    for value, made_at in ((b"a" * 100, NOW_S - 4), (b"b" * 100, NOW_S - 1)):
        history.will_send(PLACE, [value], made_at=made_at)
    history.acknowledged(PLACE, 0, [b"a" * 100, b"b" * 100])
    return history


def lost(history: RecordHistory, start: int, *, age_ms: int, size_bytes: int) -> list[int]:
    retention = Retention(age_ms, size_bytes, lambda since: (NOW_S - since) * 1000)
    return retention.lost(history, PLACE, start)


def test_old_records_may_go(history: RecordHistory) -> None:
    assert lost(history, 1, age_ms=3000, size_bytes=1_000_000) == []


def test_a_young_record_has_to_stay(history: RecordHistory) -> None:
    assert lost(history, 2, age_ms=3000, size_bytes=1_000_000) == [1]


def test_a_young_record_may_go_with_enough_bytes_behind_it(history: RecordHistory) -> None:
    assert lost(history, 1, age_ms=5000, size_bytes=200) == []
    assert lost(history, 1, age_ms=5000, size_bytes=400) == [0]


def test_a_value_that_may_lie_anywhere_counts_as_behind(history: RecordHistory) -> None:
    history.will_send(PLACE, [b"c" * 1000], made_at=NOW_S)
    assert lost(history, 2, age_ms=5000, size_bytes=400) == []
