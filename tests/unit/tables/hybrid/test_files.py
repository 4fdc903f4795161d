from __future__ import annotations

import pytest

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.hybrid import files as module
from lakelog.tables.hybrid.files import (
    ArchivedFile,
    Times,
    files_of,
    groups_by_offsets,
    plan_ranges,
    split,
)
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.offsets import OffsetRange
from unit.tables.archive_table import write_batch
from unit.tables.hybrid.kit import archive_of, offsets

SECOND_US = 1_000_000


def file(first: int, last: int, path: str = "") -> ArchivedFile:
    return ArchivedFile(path, 1, (0, 0), (first, last), ())


def test_files_are_selected_by_their_bounds(address: TableAddress) -> None:
    for number in range(3):
        commit_batch(address, write_batch(address, number * 10, number * 10 + 10, number))
    archive = archive_of(address)

    def found(*ranges: object, times: Times = Times()) -> list[tuple[int, int]]:  # noqa: B008
        return [each.offsets for each in files_of(archive, ranges, times)]  # type: ignore[arg-type]

    assert found(offsets(0, 30)) == [(0, 9), (10, 19), (20, 29)]
    assert found(offsets(10, 11), offsets(29, 30)) == [(10, 19), (20, 29)]
    assert found(offsets(0, 30, partition=1)) == []
    assert found() == []
    # The record with offset n has the time n s.
    assert found(offsets(0, 30), times=Times(first_us=15 * SECOND_US)) == [(10, 19), (20, 29)]
    assert found(offsets(0, 30), times=Times(last_us=9 * SECOND_US)) == [(0, 9)]


def test_an_empty_table_has_no_files(address: TableAddress) -> None:
    assert files_of(archive_of(address), [offsets(0, 10)]) == []


def test_only_files_with_common_offsets_are_in_one_group() -> None:
    groups = groups_by_offsets([file(10, 19), file(0, 9), file(15, 30), file(31, 40), file(16, 17)])
    assert [[each.offsets for each in group] for group in groups] == [
        [(0, 9)],
        [(10, 19), (15, 30), (16, 17)],
        [(31, 40)],
    ]


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
    monkeypatch.setattr(module, "_TASK_BYTES", size + 1)
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
