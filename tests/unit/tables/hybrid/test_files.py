from __future__ import annotations

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.hybrid.files import ArchivedFile, Times, files_of, groups_by_offsets
from lakelog.tables.iceberg.address import TableAddress
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
