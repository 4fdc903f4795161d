from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.dead_letters import open_dead_letters
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.client import TopicClient, TopicMeta
from lakelog.tables.upkeep.whereabouts import named_locations, stored_locations
from unit.tables.archive_table import TOPIC_ID, new_table, write_batch
from unit.tables.upkeep.test_ownership import Topics

TOPICS = {"orders": TopicMeta("orders", TOPIC_ID, (0,)), "sales": TopicMeta("sales", "s", (0,))}


@pytest.fixture
def address(tmp_path: Path) -> TableAddress:
    made = new_table(tmp_path)
    commit_batch(made, write_batch(made, 0, 3))
    return made


def test_tables_of_a_warehouse_are_found_by_the_ids_of_their_topics(
    address: TableAddress, tmp_path: Path
) -> None:
    open_dead_letters(address, TOPIC_ID)
    found = stored_locations(TOPICS, [(str(tmp_path / "none"), ""), (str(tmp_path), "")])
    assert list(found) == ["orders"]
    place = found["orders"]
    assert (place.name, place.published, place.is_enabled) == ("orders", {0: 3}, False)
    assert place.address.identifier == address.identifier
    assert not (tmp_path / "none").exists(), "a search creates no catalog"


def test_a_table_of_another_name_is_found(address: TableAddress, tmp_path: Path) -> None:
    renamed = {"bought": TopicMeta("bought", TOPIC_ID, (0,))}
    assert stored_locations(renamed, [(str(tmp_path), "")])["bought"].name == "orders"


@pytest.mark.parametrize("is_enabled", [True, False])
def test_keys_name_the_table_of_an_enabled_and_of_a_disabled_topic(
    address: TableAddress, tmp_path: Path, is_enabled: bool
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
