from __future__ import annotations

import json

import pytest

from lakelog.cli.commands.topic import document, listing
from lakelog.cli.positions import Bounds
from lakelog.cli.render import cell
from lakelog.client.admin.configs import ConfigEntry, ConfigSource
from lakelog.client.admin.topics import EligibleReplicas
from lakelog.client.view import Partition, Topic

_ID = bytes(range(16))
_TOPIC = Topic(
    "orders", _ID, (Partition(0, 1, 4, (1, 2), (1,), (2,)), Partition(1, -1, 4, (2, 1), ()))
)
_CONFIGS = [
    ConfigEntry("retention.ms", "1000", ConfigSource.TOPIC, False, False),
    ConfigEntry("segment.bytes", "1073741824", ConfigSource.DEFAULT, False, False),
    ConfigEntry("num.partitions", "3", ConfigSource.STATIC_BROKER, True, False),
]


def test_a_listing_has_a_row_for_each_topic() -> None:
    rows = listing([_TOPIC, Topic("old", bytes(16), ())]).rows
    assert rows == [
        {
            "name": "orders",
            "topic_id": "AAECAwQFBgcICQoLDA0ODw",
            "partitions": 2,
            "replication_factor": 2,
            "bytes": None,
            "is_internal": False,
        },
        {
            "name": "old",
            "topic_id": None,
            "partitions": 0,
            "replication_factor": 0,
            "bytes": 0,
            "is_internal": False,
        },
    ]


def test_a_description_contains_offsets_and_changed_settings() -> None:
    data = document(_TOPIC, {("orders", 0): Bounds(5, 12)}, _CONFIGS).data
    first, second = data["partitions"]
    assert first["records"] == 7
    assert (first["log_start_offset"], first["log_end_offset"]) == (5, 12)
    assert first["offline_replicas"] == [2]
    assert second["leader"] is None
    assert second["records"] is None
    assert data["records"] is None
    assert [entry["name"] for entry in data["configs"]] == ["retention.ms", "num.partitions"]
    assert data["configs"][1]["source"] == "static-broker"


def test_the_bytes_of_a_topic_count_the_logs_of_its_leaders() -> None:
    led = Topic("orders", _ID, (Partition(0, 1, 4, (1, 2), (1,)), Partition(1, 2, 4, (2, 1), ())))
    sizes = {(1, "orders", 0): 1500, (2, "orders", 0): 9, (2, "orders", 1): 500}
    (row,) = listing([led], sizes).rows
    assert (row["bytes"], cell(row["bytes"])) == (2000, "2.0 kB")
    data = document(led, {}, [], sizes=sizes).data
    assert [each["bytes"] for each in data["partitions"]] == [1500, 500]
    assert (data["bytes"], json.dumps(data["bytes"])) == (2000, "2000")
    assert document(_TOPIC, {}, [], sizes=sizes).data["bytes"] is None, "one has no leader"


def test_records_add_up_when_every_partition_is_known() -> None:
    bounds = {("orders", 0): Bounds(5, 12), ("orders", 1): Bounds(0, 3)}
    assert document(_TOPIC, bounds, []).data["records"] == 10


def test_eligible_replicas_have_columns_if_there_are_any() -> None:
    assert "elr" not in document(_TOPIC, {}, [], {}).data["partitions"][0]
    eligible = {1: EligibleReplicas((2,), (3,))}
    first, second = document(_TOPIC, {}, [], eligible).data["partitions"]
    assert (first["elr"], first["last_known_elr"]) == ([], [])
    assert (second["elr"], second["last_known_elr"]) == ([2], [3])


_SICK = Topic(
    "orders",
    _ID,
    (
        Partition(0, 1, 4, (1, 2, 3), (1, 2, 3)),
        Partition(1, 1, 4, (1, 2, 3), (1, 2)),
        Partition(2, 1, 4, (1, 2, 3), (1,)),
        Partition(3, -1, 4, (1, 2, 3), ()),
    ),
)
_MIN_ISR = ConfigEntry("min.insync.replicas", "2", ConfigSource.TOPIC, False, False)


def test_partitions_are_marked_with_their_problems() -> None:
    found = document(_SICK, {}, [_MIN_ISR])
    problems = [None, "under-replicated", "under-min-isr", "offline"]
    assert [row["problem"] for row in found.data["partitions"]] == problems
    listing = found.parts[0]
    assert "problem" in listing.columns
    healthy = document(Topic("t", _ID, _SICK.partitions[:1]), {}, [_MIN_ISR]).parts[0]
    assert "problem" not in healthy.columns


@pytest.mark.parametrize(
    ("limit", "shown"),
    [("under-replicated", [1, 2, 3]), ("under-min-isr", [2, 3]), ("offline", [3])],
)
def test_only_partitions_with_problems_may_be_shown(limit: str, shown: list[int]) -> None:
    found = document(_SICK, {}, [_MIN_ISR], limit=limit)
    assert [row["partition"] for row in found.data["partitions"]] == shown
