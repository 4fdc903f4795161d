from __future__ import annotations

import pytest

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.hybrid import plan
from lakelog.tables.hybrid.files import Times
from lakelog.tables.hybrid.plan import plan_ranges, split
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.ranges import OffsetRange
from unit.tables.archive_table import write_batch
from unit.tables.hybrid.kit import archive_of, offsets


@pytest.mark.parametrize(
    ("wanted", "old", "new"),
    [
        ((0, 30), [(5, 20)], [(0, 5), (20, 30)]),
        ((5, 20), [(5, 20)], []),
        ((20, 30), [], [(20, 30)]),
        ((0, 5), [], [(0, 5)]),
        ((19, 21), [(19, 20)], [(20, 21)]),
        ((4, 6), [(5, 6)], [(4, 5)]),
    ],
)
def test_a_range_is_cut_exactly_where_the_table_begins_and_ends(
    address: TableAddress,
    wanted: tuple[int, int],
    old: list[tuple[int, int]],
    new: list[tuple[int, int]],
) -> None:
    commit_batch(address, write_batch(address, 5, 20))
    found = split([offsets(*wanted)], archive_of(address))
    assert [[(each.start, each.end) for each in part] for part in found] == [old, new]


def test_a_partition_that_is_not_archived_is_read_from_the_log(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 5))
    other = OffsetRange("other", 0, 0, 4)
    found = plan_ranges([offsets(0, 9, partition=1), other], {"orders": archive_of(address)})
    assert [(each.offsets, each.archived) for each in found] == [
        (offsets(0, 9, partition=1), False),
        (other, False),
    ]
    assert [each.address is None for each in found] == [False, True]


def test_archived_offsets_are_dealt_to_tasks_by_the_size_of_files(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        commit_batch(address, write_batch(address, number * 10, number * 10 + 10, number))
    archive = archive_of(address)
    size = archive.table.inspect.files()["file_size_in_bytes"][0].as_py()
    monkeypatch.setattr(plan, "_TASK_BYTES", size + 1)
    found = plan_ranges([offsets(3, 45)], {"orders": archive})
    assert [(each.offsets.start, each.offsets.end, len(each.files)) for each in found] == [
        (3, 20, 2),
        (20, 40, 2),
        (40, 45, 0),
    ]
    assert str(found[0]) == "orders-0 [3, 20)"


def test_files_without_a_wanted_time_are_skipped(address: TableAddress) -> None:
    """The record at offset n is of second n."""
    for number in range(4):
        commit_batch(address, write_batch(address, number * 10, number * 10 + 10, number))
    archives = {"orders": archive_of(address)}

    def files(times: Times) -> list[int]:
        found = plan_ranges([offsets(0, 40)], archives, times)
        return [file.offsets[0] for each in found for file in each.files]

    assert files(Times(last_us=9_500_000)) == [0]
    assert files(Times(first_us=15_000_000, last_us=20_000_000)) == [10, 20]
    assert files(Times(first_us=39_500_000)) == []
