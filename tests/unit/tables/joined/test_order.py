"""The order of rows, and how many are in memory."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from lakelog.tables.joined.order import RowGroup, in_order


def batch(offsets: list[int]) -> pa.RecordBatch:
    columns = [pa.array(offsets, pa.int64()), pa.array([b"%d" % each for each in offsets])]
    return pa.RecordBatch.from_arrays(columns, ["offset", "value"])


def groups(*rows: list[int]) -> list[RowGroup]:
    found = (RowGroup(min(each), [batch(each[:2]), batch(each[2:])]) for each in rows)
    return sorted(found, key=lambda each: each.start)


def offsets(found: object) -> list[int]:
    return [each for one in found for each in one.column(0).to_pylist()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("waiting_bytes", [0, 100, 1 << 20])
def test_rows_of_overlapping_groups_are_in_order(waiting_bytes: int) -> None:
    chance = random.Random(7)
    numbers = list(range(400))
    parts: list[list[int]] = [[] for _ in range(5)]
    for number in numbers:
        parts[chance.randrange(5)].append(number)
    row_groups = [part[at : at + 8] for part in parts for at in range(0, len(part), 8)]
    shuffled = [chance.sample(each, len(each)) for each in row_groups if len(each) > 2]
    expected = sorted(number for each in shuffled for number in each)
    found = list(in_order(groups(*shuffled), waiting_bytes))
    assert offsets(found) == expected
    assert all(one.num_rows for one in found)
    values = [each for one in found for each in one.column(1).to_pylist()]
    assert values == [b"%d" % number for number in expected]


def test_rows_do_not_wait_for_all_groups_that_overlap_in_a_chain() -> None:
    read: list[int] = []

    def rows(number: int) -> RowGroup:
        def batches() -> object:
            read.append(number)
            yield batch([10 * number, 10 * number + 11])

        return RowGroup(10 * number, batches())  # type: ignore[arg-type]

    first = next(iter(in_order(map(rows, range(1000)), waiting_bytes=100)))
    assert first.column(0)[0].as_py() == 0
    assert len(read) < 20


def test_no_group_has_no_rows() -> None:
    assert list(in_order([])) == []
