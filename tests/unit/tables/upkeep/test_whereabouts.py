from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.dead_letters import open_dead_letters
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.client import TopicClient, TopicMeta
from lakelog.tables.topic.offsets import TopicPartition
from lakelog.tables.upkeep.whereabouts import (
    PartitionOverview,
    named_locations,
    overview,
    stored_locations,
)
from unit.tables.archive_log import Log
from unit.tables.archive_table import TOPIC_ID, new_table, write_batch
from unit.tables.hybrid.kit import archive_of
from unit.tables.upkeep.test_ownership import Topics

TOPICS = {"orders": TopicMeta("orders", TOPIC_ID, (0,)), "sales": TopicMeta("sales", "s", (0,))}


@pytest.fixture
def filled(tmp_path: Path) -> TableAddress:
    made = new_table(tmp_path)
    commit_batch(made, write_batch(made, 0, 3))
    return made


def test_tables_of_a_warehouse_are_found_by_the_ids_of_their_topics(
    filled: TableAddress, tmp_path: Path
) -> None:
    open_dead_letters(filled, TOPIC_ID)
    found = stored_locations(TOPICS, [(str(tmp_path / "none"), ""), (str(tmp_path), "")])
    assert list(found) == ["orders"]
    place = found["orders"]
    assert (place.name, place.published, place.is_enabled) == ("orders", {0: 3}, False)
    assert place.address.identifier == filled.identifier
    assert not (tmp_path / "none").exists(), "a search creates no catalog"


def test_a_table_of_another_name_is_found(filled: TableAddress, tmp_path: Path) -> None:
    renamed = {"bought": TopicMeta("bought", TOPIC_ID, (0,))}
    assert stored_locations(renamed, [(str(tmp_path), "")])["bought"].name == "orders"


@pytest.mark.parametrize("is_enabled", [True, False])
def test_keys_name_the_table_of_an_enabled_and_of_a_disabled_topic(
    filled: TableAddress, tmp_path: Path, is_enabled: bool
) -> None:
    topics = Topics()
    topics.keys_of["orders"] = {
        "table.enable": str(is_enabled).lower(),
        "table.warehouse": str(tmp_path),
        "table.archived.offsets": "0:2",
    }
    (place,) = named_locations(cast(TopicClient, topics), TOPICS).values()
    assert place.is_enabled is is_enabled
    assert place.published == ({0: 2} if is_enabled else {0: 3}), "the table knows its end"


def test_keys_may_name_a_dropped_table_or_one_on_another_host(tmp_path: Path) -> None:
    topics = Topics()
    new_table(tmp_path)  # the catalog, with the table `orders`
    keys: dict[str, str | None] = {"table.enable": "false", "table.warehouse": str(tmp_path)}
    topics.keys_of["orders"] = {**keys, "table.name": "dropped"}
    topics.keys_of["sales"] = {**keys, "table.warehouse": "/of/another/host"}
    (place,) = named_locations(cast(TopicClient, topics), TOPICS).values()
    assert (place.topic, place.published) == ("sales", {})


class Topic(Log):
    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.log_end(partitions)


def test_a_table_is_compared_with_its_log(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 2, 7))
    commit_batch(address, write_batch(address, 7, 9, 1))
    found = overview(cast("TopicClient", Topic({0: 12}, {0: 5})), archive_of(address))
    assert (found.rows, found.files, found.small_files, found.snapshots) == (7, 2, 2, 2)
    (one,) = found.partitions
    assert one == PartitionOverview(0, 2, 9, 5, 12)
    assert (one.lag, one.only_in_table) == (3, 3)


def test_partitions_without_archived_records_have_a_lag(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 7))
    log = Topic({0: 7, 1: 30}, {1: 20})
    found = overview(cast("TopicClient", log), archive_of(address))
    assert found.partitions[1] == PartitionOverview(1, 20, 20, 20, 30)
    assert [each.lag for each in found.partitions] == [0, 10]


def test_offsets_that_left_the_log_unarchived_are_no_lag() -> None:
    assert PartitionOverview(0, 2, 9, 11, 12).lag == 1
    assert PartitionOverview(0, 2, 9, 11, 12).only_in_table == 7
