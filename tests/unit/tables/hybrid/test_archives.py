from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from lakelog.client.offsets import EpochEnd
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.hybrid.archives import check_log, covered, open_archives
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.topic.client import TopicClient, TopicMeta
from lakelog.tables.topic.errors import ArchiveUnreadableError, LogDivergedError
from lakelog.tables.topic.offsets import TopicPartition
from unit.tables.archive_table import TOPIC_ID, write_batch
from unit.tables.hybrid.kit import archive_of


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
