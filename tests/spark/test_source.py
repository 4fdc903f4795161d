from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from lakelog.client.admin import Admin
from spark.queries import Stream, read, values
from spark.topics import START_MS, MakeTopic, open_transaction, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


def test_a_topic_is_a_table_with_the_connectors_columns(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(10)

    frame = read(spark, bootstrap, subscribe=topic, includeHeaders=True)

    assert [(f.name, f.dataType.simpleString()) for f in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = {row["value"].decode(): row.asDict(recursive=True) for row in frame.collect()}
    assert sorted(rows) == sorted(f"v{i}" for i in range(10))
    third, even = rows["v5"], rows["v6"]
    assert third["key"] is None
    assert (third["topic"], third["partition"], third["offset"]) == (topic, 2, 1)
    assert round(third["timestamp"].timestamp() * 1000) == START_MS + 5
    assert third["timestampType"] == 0
    assert third["headers"] is None
    assert even["key"] == b"k6"
    assert even["headers"] == [{"key": "n", "value": b"6"}, {"key": "empty", "value": None}]


def test_where_a_batch_begins_and_ends(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(30)
    start = json.dumps({topic: {"0": -2, "1": 8, "2": -1}})
    end = json.dumps({topic: {"0": 1, "1": -1, "2": -1}})

    frame = read(spark, bootstrap, subscribe=topic, startingOffsets=start, endingOffsets=end)
    assert values(frame) == ["v0", "v25", "v28"]

    timed = read(
        spark,
        bootstrap,
        assign=json.dumps({topic: [1]}),
        startingTimestamp=START_MS + 20,
        endingTimestamp=START_MS + 27,
    )
    assert values(timed) == ["v22", "v25"]


def test_columns_are_pruned_and_ranges_split(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(30)

    frame = read(
        spark, bootstrap, subscribePattern=f"{topic[:-1]}.", columns="value,offset", minPartitions=6
    )

    assert frame.columns == ["value", "offset"]
    assert frame.rdd.getNumPartitions() == 6
    assert values(frame) == sorted(f"v{i}" for i in range(30))
    narrow = spark.read.format("lakelog").schema("offset bigint").option("subscribe", topic)
    offsets = narrow.option("kafka.bootstrap.servers", bootstrap).load().collect()
    assert sorted(row[0] for row in offsets) == sorted(list(range(10)) * 3)


def test_an_empty_topic_has_no_rows(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    assert read(spark, bootstrap, subscribe=make_topic()).count() == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "a", "assign": "{}"}, "exactly one of"),
        ({"subscribe": "a", "startingOffset": "latest"}, "did you mean 'startingOffsets'"),
        ({"subscribe": "no-such-topic"}, "topic 'no-such-topic' does not exist"),
    ],
)
def test_errors_say_what_to_do(
    spark: SparkSession, bootstrap: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException, match=text):
        read(spark, bootstrap, **options).collect()


def test_a_stream_reads_everything_once_across_restarts(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(25)
    stream = Stream(spark, bootstrap, tmp_path, subscribe=topic, maxOffsetsPerTrigger=10)

    assert stream.run() == sorted(f"v{i}" for i in range(25))
    assert len(stream.progress) == 3
    assert all(progress["numInputRows"] <= 12 for progress in stream.progress)
    assert stream.run() == []

    with Admin(bootstrap) as admin:
        admin.topics.create_partitions(topic, 4)
    produce(bootstrap, topic, range(100, 108), partitions=4)
    assert stream.run() == sorted(f"v{i}" for i in range(100, 108))

    offsets = json.loads(stream.last_offset().read_text().splitlines()[-1])
    assert offsets.pop(topic) == {"0": 11, "1": 10, "2": 10, "3": 2}
    [(marker, nothing)] = offsets.items()
    assert marker.startswith(f"{topic}@")
    assert nothing == {}


def test_a_checkpoint_of_the_official_connector_continues(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(6)
    stream = Stream(spark, bootstrap, tmp_path, subscribe=topic)
    stream.run()
    path = stream.last_offset()
    lines = path.read_text().splitlines()
    official = json.dumps({topic: {"0": 1, "1": 2, "2": 2}}, separators=(",", ":"))
    path.write_text("\n".join([*lines[:-1], official]))
    for checksum in path.parent.glob(".*.crc"):
        checksum.unlink()

    assert stream.run() == ["v3"]


def test_a_recreated_topic_is_noticed(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(6)
    stream = Stream(spark, bootstrap, tmp_path, subscribe=topic)
    stream.run()
    with Admin(bootstrap) as admin:
        admin.topics.delete(topic)
    make_topic(9, name=topic)

    with pytest.raises(StreamingQueryException, match="deleted and created again"):
        stream.run()

    stream.options["failOnDataLoss"] = "false"
    assert stream.run() == sorted(f"v{i}" for i in range(9))


def test_aborted_records_are_never_seen(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Records of open transactions are not read either, except with read_uncommitted."""
    topic = make_topic(partitions=1)
    with open_transaction(bootstrap, topic) as producer:
        uncommitted = {"subscribe": topic, "kafka.isolation.level": "read_uncommitted"}
        assert values(read(spark, bootstrap, subscribe=topic)) == ["0", "2"]
        assert values(read(spark, bootstrap, **uncommitted)) == ["0", "1", "2", "3", "open"]
        beyond = json.dumps({topic: {"0": 9}})
        with pytest.raises(PySparkException, match="the transaction at offset 8 is still open"):
            read(spark, bootstrap, subscribe=topic, endingOffsets=beyond).collect()

        stream = Stream(spark, bootstrap, tmp_path / "a", subscribe=topic)
        assert stream.run() == ["0", "2"]
        ahead = Stream(spark, bootstrap, tmp_path / "b", **uncommitted)
        assert ahead.run() == ["0", "1", "2", "3", "open"]
        behind = Stream(spark, bootstrap, tmp_path / "b", subscribe=topic)
        assert behind.run() == [], "a transaction that is open is no loss"
        producer.send(topic, b"more")
        producer.commit()
        assert stream.run() == ["more", "open"]
        assert behind.run() == ["more"], "records are not read twice"
