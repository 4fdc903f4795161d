from __future__ import annotations

import pytest

from lakelog.testing.cluster_demo.proof import Acknowledged, Verdict, examine

STORED = {0: [(0, b"0"), (1, b"2")], 1: [(0, b"1")]}
ACKNOWLEDGED = [
    Acknowledged(0, 0, b"0", 0.1),
    Acknowledged(1, 0, b"1", 0.2),
    Acknowledged(0, 1, b"2", 0.3),
]


def test_records_at_their_places_prove_that_nothing_is_lost() -> None:
    verdict = examine(ACKNOWLEDGED, STORED)
    assert verdict == Verdict(3, 3, 0, 0, 0, 0)
    assert verdict.holds


def test_a_record_without_an_acknowledgement_may_be_stored() -> None:
    assert examine(ACKNOWLEDGED[:2], STORED).holds


@pytest.mark.parametrize(
    ("stored", "verdict"),
    [
        ({0: [(0, b"0")], 1: [(0, b"1")]}, Verdict(3, 2, 1, 0, 0, 0)),
        ({0: [(0, b"0"), (1, b"2"), (2, b"2")], 1: [(0, b"1")]}, Verdict(3, 4, 0, 0, 1, 0)),
        ({0: [(0, b"2"), (1, b"0")], 1: [(0, b"1")]}, Verdict(3, 3, 0, 2, 0, 1)),
        ({0: [(0, b"0")], 1: [(0, b"1"), (1, b"2")]}, Verdict(3, 3, 0, 1, 0, 0)),
    ],
    ids=["missing", "repeated", "reordered", "misplaced"],
)
def test_each_anomaly_is_counted(
    stored: dict[int, list[tuple[int, bytes]]], verdict: Verdict
) -> None:
    found = examine(ACKNOWLEDGED, stored)
    assert found == verdict
    assert not found.holds
