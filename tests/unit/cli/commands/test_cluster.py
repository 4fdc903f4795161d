from __future__ import annotations

import pytest

from lakelog.cli.commands.cluster import (
    broker_listing,
    changes,
    feature_listing,
    info_document,
    parse_levels,
)
from lakelog.cli.failures import CliError
from lakelog.client.admin.brokers import ClusterDescription, Feature, RegisteredBroker
from lakelog.client.view import Partition, Topic

CLUSTER = ClusterDescription(
    "MkU3OEVBNTcwNTJENDM2Qg",
    2,
    (
        RegisteredBroker(1, "h1", 9092, "r1", False),
        RegisteredBroker(2, "::1", 9092, None, False),
        RegisteredBroker(3, "h3", 9092, None, True),
    ),
)
TOPICS = [
    Topic("t", bytes(16), (Partition(0, 1, 0, (1, 2), (1, 2)), Partition(1, 1, 0, (1, 9), (1,)))),
    Topic("__consumer_offsets", bytes(16), (Partition(0, 2, 0, (2,), (2,)),), is_internal=True),
]


def test_brokers_have_their_state_and_the_numbers_of_their_partitions() -> None:
    rows = broker_listing(CLUSTER, TOPICS).rows
    assert [(row["id"], row["state"], row["leaders"], row["replicas"]) for row in rows] == [
        (1, "online", 2, 2),
        (2, "online", 1, 2),
        (3, "fenced", 0, 0),
        (9, "unregistered", 0, 1),
    ]
    assert [row["address"] for row in rows] == ["h1:9092", "[::1]:9092", "h3:9092", None]
    assert [row["id"] for row in rows if row["is_controller"]] == [2]


def test_the_description_names_the_controller_and_counts() -> None:
    document = info_document(CLUSTER, TOPICS, "sqlite:/m.db", {"group.version": 1})
    assert document.data == {
        "cluster_id": "MkU3OEVBNTcwNTJENDM2Qg",
        "controller": 2,
        "controller_address": "[::1]:9092",
        "metadata_store": "sqlite:/m.db",
        "brokers": 3,
        "fenced_brokers": 1,
        "topics": 1,
        "partitions": 3,
        "features": {"group.version": 1},
    }
    assert document.facts["features"] == ["group.version=1"]


def test_a_cluster_without_a_controller_has_none() -> None:
    headless = ClusterDescription("c", -1, CLUSTER.brokers)
    data = info_document(headless, [], None, {}).data
    assert (data["controller"], data["controller_address"]) == (None, None)


FEATURES = {
    "current": Feature("current", 2, {1: (0, 2), 2: (0, 2)}),
    "mixed": Feature("mixed", 1, {1: (1, 3), 2: (1, 2)}),
    "new": Feature("new", 0, {1: (1, 1)}, lacking=(2,)),
    "old": Feature("old", 1, {1: (1, 4), 2: (1, 4)}),
}


def test_a_feature_is_shown_with_the_levels_of_all_brokers() -> None:
    rows = feature_listing(FEATURES.values()).rows
    assert [(row["level"], row["lowest"], row["highest"], row["note"]) for row in rows] == [
        (2, 0, 2, ""),
        (1, 1, 2, "broker 2 has an older version"),
        (0, 0, 0, "unknown to broker 2"),
        (1, 1, 4, "can be upgraded"),
    ]


def test_an_upgrade_without_a_level_is_the_highest_of_all_brokers() -> None:
    assert parse_levels(["mixed"], FEATURES, upgrade=True) == {"mixed": 2}
    assert parse_levels(["all"], FEATURES, upgrade=True) == {"mixed": 2, "old": 4}
    assert parse_levels(["old=2", "mixed=2"], FEATURES, upgrade=True) == {"old": 2, "mixed": 2}
    assert parse_levels(None, FEATURES, upgrade=False) == {}


@pytest.mark.parametrize(
    ("text", "upgrade", "said"),
    [
        ("other=1", True, "'other' is no feature"),
        ("old", False, "'old' is not FEATURE=LEVEL"),
        ("old=", True, "'old=' is not FEATURE=LEVEL"),
        ("old=-1", True, "not FEATURE=LEVEL"),
        ("old=99999", True, "not FEATURE=LEVEL"),
        ("all", False, "'all' is no feature"),
    ],
)
def test_another_text_is_an_error(text: str, upgrade: bool, said: str) -> None:
    with pytest.raises(CliError, match=said):
        parse_levels([text], FEATURES, upgrade=upgrade)


def test_only_changes_are_named() -> None:
    assert changes(FEATURES, {"current": 2, "old": 3}) == ["old from 1 to 3"]
