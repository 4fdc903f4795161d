"""The judge of the endurance test finds each violation that is planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from endurance.history import History, Journals, Stored
from endurance.judge import (
    COPIES,
    judge_acknowledged,
    judge_ends,
    judge_offsets,
    judge_reading,
    judge_transactions,
    judge_transformed,
    judge_views,
    transformed,
)

RECORDS = [Stored(n % 2, n // 2, f"p.0/{n}") for n in range(10)]


def test_a_correct_history_has_no_complaints() -> None:
    unacknowledged = [*RECORDS, Stored(0, 5, "p.0/10")]
    assert judge_acknowledged(RECORDS, unacknowledged) == []
    assert judge_ends(RECORDS, {0: 5, 1: 5}) == []
    assert judge_offsets({("readers", 0): 5}, {("readers", 0): 7}) == []
    outputs = [Stored(0, at, transformed(record)) for at, record in enumerate(RECORDS)]
    assert judge_transformed(RECORDS, outputs) == []
    assert judge_views(RECORDS[:3], RECORDS) == []
    visible = [Stored(at, 0, "l/1") for at in range(COPIES)]
    outcomes = {"l/1": "committed", "l/2": "aborted", "l/3": "unknown"}
    assert judge_transactions(outcomes, visible) == []


def test_a_lost_acknowledgement() -> None:
    (complaint,) = judge_acknowledged(RECORDS, RECORDS[:4] + RECORDS[5:])
    assert complaint.startswith("lost: p.0/4")
    (complaint,) = judge_ends(RECORDS, {0: 5, 1: 4})
    assert complaint.startswith("lost: partition 1 ends at 4")
    assert judge_ends(RECORDS, {0: 5})


def test_another_record_in_its_place() -> None:
    found = [*RECORDS[:9], Stored(1, 4, "q.0/0")]
    assert any(text.startswith("lost: p.0/9") for text in judge_acknowledged(RECORDS, found))


def test_a_duplicate() -> None:
    found = [*RECORDS, Stored(0, 5, "p.0/8")]
    assert judge_acknowledged(RECORDS, found) == ["twice: p.0/8 is there 2 times"]


def test_a_record_out_of_order() -> None:
    found = [Stored(0, 0, "p.0/1"), Stored(0, 1, "p.0/0")]
    assert judge_acknowledged(found, found) == ["out of order: p.0/0 comes after 1"]


@pytest.mark.parametrize(
    ("outcome", "visible"),
    [
        *(("aborted", 1), ("aborted", COPIES), ("unknown", 1)),
        *(("committed", 0), ("committed", COPIES - 1), ("committed", COPIES + 1)),
    ],
)
def test_a_transaction_that_is_not_whole_or_not_to_be_seen(outcome: str, visible: int) -> None:
    records = [Stored(0, at, "l/1") for at in range(visible)]
    (complaint,) = judge_transactions({"l/1": outcome}, records)
    assert complaint == f"{outcome} transaction l/1: {visible} records are visible"


def test_a_record_of_no_transaction() -> None:
    assert judge_transactions({}, [Stored(0, 0, "l/1")]) == ["no client began transaction l/1"]


@pytest.mark.parametrize("found", [{}, {("readers", 0): -1}, {("readers", 0): 4}])
def test_a_committed_offset_that_was_reset(found: dict[tuple[str, int], int]) -> None:
    (complaint,) = judge_offsets({("readers", 0): 5}, found)
    assert complaint.startswith("reset: group readers had committed 5")


def test_a_transformation_that_was_not_made_once() -> None:
    once = [Stored(0, at, transformed(record)) for at, record in enumerate(RECORDS)]
    assert len(judge_transformed(RECORDS, once[1:])) == 1
    assert len(judge_transformed(RECORDS, [*once, once[0]])) == 1
    assert len(judge_transformed(RECORDS[1:], once)) == 1


def test_a_record_that_no_member_was_given() -> None:
    history = History()
    history.note("readers.0", {"read": [0, 0, 4]})
    history.note("readers.1", {"read": [1, 0, 3]})
    assert judge_reading(history, RECORDS) == ["skipped: no member was given 1:4"]


def test_a_view_that_shows_too_much() -> None:
    assert len(judge_views(RECORDS, RECORDS[1:])) == 1


def test_journals_are_read_on(tmp_path: Path) -> None:
    journals, path = Journals(tmp_path), tmp_path / "transform.1.jsonl"
    path.write_bytes(b'{"began": 1}\n{"commit": {"0": 7}}\n{"ended": [1, "comm')
    assert journals.look().transactions == {"transform.1/1": "unknown"}
    with path.open("ab") as file:
        file.write(b'itted"]}\n{"commit": {"0": 5}}\n{"violation": "fatal"}\n')
    history = journals.look()
    assert history.transactions == {"transform.1/1": "committed"}
    assert history.committed == {("transform", 0): 7}
    assert history.violations == ["transform.1: fatal"]
