from __future__ import annotations

import pytest

from lakelog.testing.cluster_demo.proof import (
    Acknowledged,
    Fault,
    Gap,
    Verdict,
    examine,
    longest_gap,
    table,
)

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


def test_a_record_whose_offset_the_client_does_not_know_is_sought_in_its_partition() -> None:
    unknown = [record._replace(offset=None) for record in ACKNOWLEDGED]
    assert examine(unknown, STORED).holds
    assert examine(unknown, {0: STORED[0], 1: []}).missing == 1
    assert examine(unknown, {0: [*STORED[0], (2, b"1")]}).misplaced == 1


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


def test_the_longest_gap_of_a_partition_counts_even_if_others_go_on() -> None:
    moments = [(0, 1.0), (1, 1.1), (1, 2.0), (1, 3.0), (0, 3.5), (0, 3.6)]
    assert longest_gap(moments, 1.5, 4.0) == Gap(0, 1.0, 3.5)


def test_gaps_before_and_after_the_fault_do_not_count() -> None:
    moments = [(0, 0.0), (0, 5.0), (0, 6.0), (0, 6.5), (0, 9.0), (0, 20.0), (0, 21.0)]
    assert longest_gap(moments, 6.0, 8.0) == Gap(0, 6.5, 9.0)
    assert longest_gap(moments, 5.5, 6.2) == Gap(0, 5.0, 6.0)


def test_a_gap_that_has_not_ended_counts() -> None:
    assert longest_gap([(0, 1.0), (1, 4.0)], 2.0, 4.5) == Gap(0, 1.0, 4.5)


def test_a_partition_without_writes_has_no_gap() -> None:
    assert longest_gap([], 0.0, 1.0) is None
    assert "no write" in table([Fault("kill", 0.0, 1.0)], [None])


def test_each_fault_has_a_line_with_its_gap() -> None:
    lines = table([Fault("kill -9", 1.0, 2.0)], [Gap(3, 1.0, 2.26)]).splitlines()
    assert lines[2] == "kill -9  1.26 s (partition 3)"
