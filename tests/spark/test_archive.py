from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import load_catalog

from lakelog.client.admin import Admin, ResourceType
from lakelog.client.producer.api import Producer
from lakelog.spark.archive.sync import SyncError, SyncProgress, SyncResult, sync_topic
from lakelog.tables.topic.errors import TopicMissingError
from spark.queries import read
from spark.topics import START_MS, MakeTopic, open_transaction, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


def rows(result: SyncResult) -> list[dict[str, Any]]:
    table = load_catalog("lakelog", **result.catalog).load_table(result.table)
    found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def snapshots(result: SyncResult) -> int:
    table = load_catalog("lakelog", **result.catalog).load_table(result.table)
    return len(table.metadata.snapshots)


def test_a_topic_becomes_a_table_and_stays_one(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(90)

    first = sync_topic(bootstrap, topic, str(tmp_path), spark=spark)
    again = sync_topic(bootstrap, topic, str(tmp_path), spark=spark)

    assert (first.rows, first.ends) == (90, {0: 30, 1: 30, 2: 30})
    assert (again.rows, again.rows_total, again.ends) == (0, 90, first.ends)
    assert again.snapshot_id == first.snapshot_id

    with Admin(bootstrap) as admin:
        admin.topics.create_partitions(topic, 4)
    produce(bootstrap, topic, range(100, 140), partitions=4)
    steps: list[SyncProgress] = []
    last = sync_topic(
        bootstrap, topic, str(tmp_path), spark=spark, batch_bytes=500, progress=steps.append
    )

    assert (last.rows, last.ends) == (40, {0: 40, 1: 40, 2: 40, 3: 10})
    assert steps[-1].ends == last.ends
    assert snapshots(last) > 2, "a small batch_bytes makes several commits"
    found = rows(last)
    assert [(row["partition"], row["offset"]) for row in found] == [
        (partition, offset) for partition, end in last.ends.items() for offset in range(end)
    ]
    assert found[0]["value"] == b"v0"
    assert found[0]["key"] is None
    assert found[0]["topic"] == topic
    assert found[0]["timestamp"].timestamp() == START_MS / 1000
    assert found[0]["headers"] == [{"key": "n", "value": b"0"}, {"key": "empty", "value": None}]


def test_a_recreated_topic_needs_a_table_of_its_own(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(6)
    sync_topic(bootstrap, topic, str(tmp_path), spark=spark)
    with Admin(bootstrap) as admin:
        admin.topics.delete(topic)
    make_topic(9, name=topic)

    with pytest.raises(SyncError, match="another topic's records"):
        sync_topic(bootstrap, topic, str(tmp_path), spark=spark)

    result = sync_topic(bootstrap, topic, str(tmp_path), table="anew", spark=spark)
    assert (result.table, result.rows) == (("lakelog", "anew"), 9)


def test_following_ends_when_the_stop_event_is_set(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(6)
    stop = threading.Event()
    seen: list[int] = []

    def on_progress(state: SyncProgress) -> None:
        seen.append(state.rows)
        if len(seen) == 1:
            produce(bootstrap, topic, range(6, 9))
        else:
            stop.set()

    result = sync_topic(
        bootstrap,
        topic,
        str(tmp_path),
        follow=True,
        every_s=0.2,
        spark=spark,
        progress=on_progress,
        stop=stop,
    )

    assert seen == [6, 9]
    assert result.rows == 9


def test_fields_of_json_values_are_columns_also_later_ones(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Without a registry, without a restart, and without a type that stops the job."""
    topic = make_topic(partitions=1)
    batches: list[list[bytes | None]] = [
        [b'{"id": 1, "offset": "north"}', b"no JSON", None],
        [b'{"id": 2.5, "offset": "south", "price": 9.5, "tags": ["a"]}', b'{"id": 3}'],
    ]

    def send() -> None:
        with Producer(bootstrap) as producer:
            for value in batches.pop(0):
                producer.send(topic, value)

    def on_progress(_: SyncProgress) -> None:
        send() if batches else stop.set()

    stop = threading.Event()
    with Admin(bootstrap) as admin:
        admin.configs.alter(ResourceType.TOPIC, topic, {"table.value.format": "json"})
    send()
    result = sync_topic(
        bootstrap,
        topic,
        str(tmp_path),
        follow=True,
        every_s=0.2,
        spark=spark,
        progress=on_progress,
        stop=stop,
    )

    found = rows(result)
    assert [row["value"] for row in found][1:3] == [b"no JSON", None]
    fields = [row["data"] and {k: v for k, v in row["data"].items() if v} for row in found]
    assert fields == [
        {"id": 1, "offset": "north"},
        None,
        None,
        {"offset": "south", "price": 9.5, "tags": ["a"]},
        {"id": 3},
    ]
    assert [row["rescued"] for row in found] == [None, None, None, '{"$.id":2.5}', None]
    assert [row["offset"] for row in found] == list(range(5))
    # One read returns the records alone, in their own columns.
    with Admin(bootstrap) as admin:
        admin.configs.alter(ResourceType.TOPIC, topic, {"table.enable": "true"})
    sync_topic(bootstrap, topic, str(tmp_path), spark=spark)
    assert read(spark, bootstrap, subscribe=topic).where("value is not null").count() == 4


def test_a_topic_that_does_not_exist_is_named(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    with pytest.raises(TopicMissingError, match="'no-such-topic' does not exist"):
        sync_topic(bootstrap, "no-such-topic", str(tmp_path), spark=spark)


def test_aborted_records_are_not_archived(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(partitions=1)
    with open_transaction(bootstrap, topic) as producer:
        first = sync_topic(bootstrap, topic, str(tmp_path), spark=spark)
        assert (first.rows, first.ends) == (2, {0: 8})
        producer.commit()
    last = sync_topic(bootstrap, topic, str(tmp_path), spark=spark)
    assert [row["value"] for row in rows(last)] == [b"0", b"2", b"open"]


def test_an_impossible_timestamp_stops_the_archive_or_is_null(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    topic, any_time = f"times-{tmp_path.name}", {"message.timestamp.after.max.ms": str(2**63 - 1)}
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=1, configs=any_time)
    with Producer(bootstrap) as producer:
        for timestamp_ms in (START_MS, 2**62, START_MS):
            producer.send(topic, b"v", timestamp_ms=timestamp_ms)

    with pytest.raises(SyncError, match=rf"^{topic}-0@1: .*{2**62}.*--null-timestamps"):
        sync_topic(bootstrap, topic, str(tmp_path), spark=spark)
    result = sync_topic(bootstrap, topic, str(tmp_path), null_timestamps=True, spark=spark)

    found = rows(result)
    assert [row["rawTimestamp"] for row in found] == [None, 2**62, None]
    assert [row["timestamp"] is None for row in found] == [False, True, False]
