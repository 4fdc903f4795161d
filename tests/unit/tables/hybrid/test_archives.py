from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from lakelog.client.offsets import EpochEnd
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.hybrid import archives as module
from lakelog.tables.hybrid.archives import (
    ArchivedFile,
    Times,
    check_log,
    covered,
    files_of,
    groups_by_offsets,
    open_archives,
    plan_ranges,
    split,
)
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.topic.client import TopicClient, TopicMeta
from lakelog.tables.topic.errors import ArchiveUnreadableError, LogDivergedError
from lakelog.tables.topic.offsets import OffsetRange, TopicPartition
from unit.tables.archive_table import TOPIC_ID, write_batch
from unit.tables.hybrid.kit import archive_of, offsets


class Cluster:
    """A stand-in for a client: one topic with a table, and the end of its epochs."""

    def __init__(self, folder: Path, published: str = "", epoch_end: int = 100) -> None:
        self.values = {
            "table.enable": "true",
            "table.warehouse": str(folder),
            "table.archived.offsets": published,
        }
        self.epoch_end = epoch_end

    def configs(self, names: object, keys: object) -> dict[str, dict[str, str]]:
        return {"orders": self.values}

    def describe(self, names: object) -> dict[str, TopicMeta]:
        return {"orders": TopicMeta("orders", TOPIC_ID, (0,))}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        return {key: EpochEnd(epoch, self.epoch_end) for key, epoch in epochs.items()}


def opened(cluster: Cluster) -> object:
    return open_archives(cast("TopicClient", cluster), ["orders"])


def test_snapshot_and_ends_are_of_one_version(address: TableAddress, tmp_path: Path) -> None:
    commit_batch(address, write_batch(address, 3, 7))
    (archive,) = open_archives(cast("TopicClient", Cluster(tmp_path, "0:7")), ["orders"]).values()
    commit_batch(address, write_batch(address, 7, 9, 1))
    extent = archive.extent(0)
    assert extent is not None and (extent.start, extent.end) == (3, 7)
    assert archive.extent(1) is None
    assert archive.table.scan().to_arrow().num_rows == 4
    assert covered(archive, ("orders", 0), 3, 7)
    assert not covered(archive, ("orders", 0), 3, 8)
    assert not covered(archive, ("orders", 1), 0, 1)


def test_a_table_that_was_never_made_archives_nothing(tmp_path: Path) -> None:
    assert opened(Cluster(tmp_path / "none")) == {}
    assert not (tmp_path / "none").exists(), "a reader creates no catalog"


def test_a_table_behind_its_published_end_is_an_error(
    address: TableAddress, tmp_path: Path
) -> None:
    commit_batch(address, write_batch(address, 0, 7))
    with pytest.raises(ArchiveUnreadableError, match="lacks offsets of orders-0"):
        opened(Cluster(tmp_path, "0:8"))
    open_catalog(address.catalog).drop_table(address.identifier)
    with pytest.raises(ArchiveUnreadableError, match=r"was dropped\. Set the option archive=none"):
        opened(Cluster(tmp_path, "0:7"))


def test_a_catalog_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"not a database" * 100)
    with pytest.raises(ArchiveUnreadableError, match="cannot be read here"):
        opened(Cluster(tmp_path, "0:7"))


def test_a_log_that_lost_archived_records_does_not_continue_the_table(
    address: TableAddress, tmp_path: Path
) -> None:
    commit_batch(address, write_batch(address, 0, 7))
    archive = archive_of(address)
    check_log(cast("TopicClient", Cluster(tmp_path, epoch_end=7)), archive, [0])
    with pytest.raises(LogDivergedError, match=r"was cut and grew again.*--skip-lost"):
        check_log(cast("TopicClient", Cluster(tmp_path, epoch_end=5)), archive, [0])


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
