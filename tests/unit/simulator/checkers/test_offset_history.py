"""The history of committed offsets: losses, steps back, and offsets of open transactions."""

from __future__ import annotations

import pytest

from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.observations import Fate, Transaction
from simulator.checkers.offset_history import OffsetHistory

PLACE = ("topic", 0)
LOG = ("__consumer_offsets", 0)


@pytest.fixture
def findings() -> Findings:
    return Findings()


@pytest.fixture
def offsets(findings: Findings) -> OffsetHistory:
    return OffsetHistory(findings)


def commit(offsets: OffsetHistory, *, log_end: int = 1) -> int:
    value = offsets.will_commit("g", PLACE)
    offsets.acknowledged("g", PLACE, value, {LOG: log_end})
    return value


def test_an_offset_is_lost(offsets: OffsetHistory, findings: Findings) -> None:
    commit(offsets)
    offsets.fetched("g", PLACE, -1, offsets.last_done("g", PLACE))
    assert findings.broken == {Law.OFFSET_KEPT}


def test_an_offset_goes_back(offsets: OffsetHistory, findings: Findings) -> None:
    first = offsets.will_commit("g", PLACE)
    second = commit(offsets)
    at_least = offsets.last_done("g", PLACE)
    offsets.fetched("g", PLACE, second, at_least)
    assert findings.violations == []
    offsets.fetched("g", PLACE, first, at_least)
    assert findings.broken == {Law.OFFSET_FORWARD}


def test_an_offset_that_no_client_committed(offsets: OffsetHistory, findings: Findings) -> None:
    commit(offsets)
    offsets.fetched("g", PLACE, 99, -1)
    assert findings.broken == {Law.OFFSET_SENT}


def test_a_commit_without_a_response_may_be_done_or_not(
    offsets: OffsetHistory, findings: Findings
) -> None:
    value = offsets.will_commit("g", PLACE)
    for found in (-1, value):
        offsets.fetched("g", PLACE, found, offsets.last_done("g", PLACE))
    assert findings.violations == []


@pytest.mark.parametrize("fate", Fate)
def test_an_offset_appears_with_its_transaction(
    offsets: OffsetHistory, findings: Findings, fate: Fate
) -> None:
    value = offsets.will_commit("g", PLACE, Transaction("t", fate))
    offsets.acknowledged("g", PLACE, value, {})
    assert offsets.last_done("g", PLACE) == (value if fate is Fate.COMMITTED else -1)
    offsets.fetched("g", PLACE, value, -1)
    violates = fate in (Fate.OPEN, Fate.ABORTED)
    assert findings.broken == ({Law.OFFSET_DECIDED} if violates else set())


def test_a_cut_log_takes_the_commits_behind_its_end(offsets: OffsetHistory) -> None:
    kept, lost = commit(offsets, log_end=5), commit(offsets, log_end=6)
    offsets.cut(PLACE, 0)
    assert offsets.last_done("g", PLACE) == lost, "the log of another topic"
    offsets.cut(LOG, 5)
    assert offsets.last_done("g", PLACE) == kept
