from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import load_catalog

from lakelog.cli.main import run
from lakelog.client.admin import Admin, ResourceType
from lakelog.client.producer.api import Producer
from lakelog.records.batch import read_header
from lakelog.records.record import decode_records
from lakelog.spark.archive.sync import SyncError, SyncProgress, SyncResult, sync_topic
from lakelog.tables.archive.reconcile import ProgressSource
from lakelog.tables.archive.refusals import OnBadRecord
from lakelog.tables.iceberg.warehouse import open_warehouse
from lakelog.tables.topic.errors import TopicMissingError
from spark.sources import BatchQuery
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


@pytest.mark.usefixtures("without_spark")
def test_a_recreated_topic_needs_a_table_of_its_own(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(6)
    sync_topic(bootstrap, topic, str(tmp_path))
    with Admin(bootstrap) as admin:
        admin.topics.delete(topic)
    make_topic(9, name=topic)

    with pytest.raises(SyncError, match="another topic's records"):
        sync_topic(bootstrap, topic, str(tmp_path))

    result = sync_topic(bootstrap, topic, str(tmp_path), table="anew")
    assert (result.table, result.rows) == (("lakelog", "anew"), 9)


@pytest.mark.usefixtures("without_spark")
def test_a_table_that_another_program_filled_is_continued(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, warehouse = make_topic(9), open_warehouse(str(tmp_path / "theirs"))
    ours = sync_topic(bootstrap, topic, str(tmp_path / "ours"))
    catalog = load_catalog("lakelog", **warehouse.catalog)
    catalog.create_namespace("lakelog")
    source = load_catalog("lakelog", **ours.catalog).load_table(ours.table)
    table = catalog.create_table(ours.table, source.schema())
    table.append(source.scan(row_filter="offset < 2").to_arrow())
    theirs = partial(sync_topic, bootstrap, topic, str(tmp_path / "theirs"))

    with pytest.raises(SyncError, match="6 rows that this archive did not write: --adopt rows"):
        theirs()
    result = theirs(adopt=ProgressSource.ROWS)
    assert (result.rows, result.rows_total) == (3, 9)
    assert rows(result) == rows(ours)


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


@pytest.mark.usefixtures("without_spark")
def test_fields_of_json_values_are_columns_also_later_ones(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Without a registry, without a restart, and without a type that stops the job."""
    topic = make_topic(partitions=1)
    batches: list[list[bytes | None]] = [
        [b'{"id": 1, "offset": "north"}', b"no JSON", None],
        [
            b'{"id": 2.5, "offset": "south", "price": 9.5, "tags": ["a"]}',
            b"\0\0\0\0\7" + b'{"id": 3}',
        ],
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
    sync_topic(bootstrap, topic, str(tmp_path))
    query = BatchQuery(bootstrap, topic)
    batches_read = [batch for task in query.tasks for batch in query.reader.read(task)]
    assert sum(len(batch.column("value").drop_null()) for batch in batches_read) == 4


@pytest.mark.usefixtures("without_spark")
def test_a_topic_that_does_not_exist_is_named(bootstrap: str, tmp_path: Path) -> None:
    with pytest.raises(TopicMissingError, match="'no-such-topic' does not exist"):
        sync_topic(bootstrap, "no-such-topic", str(tmp_path))


@pytest.mark.usefixtures("without_spark")
def test_aborted_records_are_not_archived(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(partitions=1)
    with open_transaction(bootstrap, topic) as producer:
        first = sync_topic(bootstrap, topic, str(tmp_path))
        assert (first.rows, first.ends) == (2, {0: 8})
        producer.commit()
    last = sync_topic(bootstrap, topic, str(tmp_path))
    assert [row["value"] for row in rows(last)] == [b"0", b"2", b"open"]


@pytest.mark.usefixtures("without_spark")
def test_an_impossible_timestamp_stops_the_archive_or_is_null(
    bootstrap: str, tmp_path: Path
) -> None:
    topic, any_time = f"times-{tmp_path.name}", {"message.timestamp.after.max.ms": str(2**63 - 1)}
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=1, configs=any_time)
    send(bootstrap, topic, START_MS, 2**62, START_MS)

    stopped = rf"^{topic}-0@1: .*{2**62}.*--null-timestamps.*table.errors to dead-letter or skip"
    with pytest.raises(SyncError, match=stopped):
        sync_topic(bootstrap, topic, str(tmp_path))
    result = sync_topic(bootstrap, topic, str(tmp_path), null_timestamps=True)

    found = rows(result)
    assert [row["rawTimestamp"] for row in found] == [None, 2**62, None]
    assert [row["timestamp"] is None for row in found] == [False, True, False]


@pytest.mark.usefixtures("without_spark")
def test_records_that_cannot_be_rows_go_to_the_dead_letters_or_are_skipped(
    bootstrap: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = f"letters-{tmp_path.name}"
    keys = {
        "message.timestamp.after.max.ms": str(2**63 - 1),
        "table.enable": "true",
        "table.errors": "dead-letter",
    }
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=1, configs=keys)
    send(bootstrap, topic, START_MS, 2**62, START_MS, 2**62 + 1)
    notes: list[str] = []

    first = sync_topic(bootstrap, topic, str(tmp_path), notice=notes.append)
    again = sync_topic(bootstrap, topic, str(tmp_path))
    assert (first.rows, again.rows, first.ends) == (2, 0, {0: 4})
    assert notes == [
        f"{topic}: {topic}-0 [1, 2), {topic}-0 [3, 4) are dead letters, in "
        f"lakelog.{topic}_dead_letters"
    ]
    table = load_catalog("lakelog", **first.catalog).load_table(f"lakelog.{topic}_dead_letters")
    dead_letters = table.scan().to_arrow().to_pylist()
    assert [(row["partition"], row["offset"], row["offsetLast"]) for row in dead_letters] == [
        (0, 1, 1),
        (0, 3, 3),
    ]
    raw = dead_letters[0]["raw"]
    (record,) = decode_records(raw, read_header(raw), len(raw))
    assert (record.timestamp, record.value) == (2**62, b"v1")

    send(bootstrap, topic, 2**62, START_MS)
    result = sync_topic(
        bootstrap,
        topic,
        str(tmp_path),
        errors=OnBadRecord.SKIP,
        notice=notes.append,
    )
    assert (result.rows, result.rows_total, result.ends) == (1, 3, {0: 6})
    assert notes[-1] == (f"{topic}: left out {topic}-0 [4, 5), which cannot be rows of the table")
    assert run(["table", "audit", topic, "-b", bootstrap, "-f", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    (one,) = found["partitions"]
    assert (one["rows"], one["compared"], one["unverified"]) == (3, 3, 0)
    assert (one["dead_letters"], one["skipped_records"]) == (2, 1)
    assert BatchQuery(bootstrap, topic).run() == ["v0", "v2", "v1"]


def send(bootstrap: str, topic: str, *times_ms: int) -> None:
    with Producer(bootstrap) as producer:
        for number, timestamp_ms in enumerate(times_ms):
            producer.send(topic, b"v%d" % number, timestamp_ms=timestamp_ms)
