from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from lakelog.client.admin import Admin, ResourceType
from lakelog.client.errors import ClientError
from lakelog.client.producer import Producer
from lakelog.records.builder import BatchBuilder
from lakelog.records.crc import crc32c
from lakelog.spark import attach
from spark.queries import Stream, read, read_stream, values
from spark.sources import BatchQuery
from spark.topics import START_MS, MakeTopic, open_transaction, produce
from wire_client import WireClient
from wire_client import produce as wire_produce

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


def test_an_error_of_an_option_is_short(spark: SparkSession, bootstrap: str) -> None:
    rows = spark.createDataFrame([("v",)], "value string").write.format("lakelog").mode("append")
    calls: list[Callable[[], object]] = [
        lambda: read(spark, bootstrap, subscribe="a", failOnDataLoss="perhaps"),
        lambda: rows.option("kafka.bootstrap.servers", bootstrap).option("topics", "a").save(),
        lambda: read(spark, bootstrap, subscribe="no-such-topic").collect(),
        lambda: read(spark, "127.0.0.1:1", subscribe="a").collect(),
    ]
    names = ["option", "option", "'no-such-topic'", "127.0.0.1:1"]
    for call, name in zip(calls, names, strict=True):
        with pytest.raises(PySparkException) as error:
            call()
        assert name in str(error.value)
        assert "Traceback" not in str(error.value)
        assert len(str(error.value)) <= 300


def test_an_error_of_a_streams_option_comes_before_the_plan(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Spark's own text with the ids of the query is before it, and the plan of the query after."""
    missing = Stream(spark, bootstrap, tmp_path / "1", subscribe="no-such-topic")
    unreachable = Stream(spark, "127.0.0.1:1", tmp_path / "2", subscribe="a")
    source = read_stream(spark, bootstrap, subscribe=make_topic(1))
    sink = {"kafka.bootstrap.servers": bootstrap, "topic": "a", "delivry": "exactly-once"}
    writer = source.writeStream.format("lakelog").options(**sink)
    writer = writer.option("checkpointLocation", str(tmp_path / "3")).trigger(availableNow=True)
    calls: dict[str, Callable[[], object]] = {
        "'no-such-topic' does not exist": missing.run,
        "127.0.0.1:1": unreachable.run,
        "unknown option 'delivry'": lambda: writer.start().awaitTermination(),
    }
    for text, call in calls.items():
        with pytest.raises(PySparkException) as error:
            call()
        assert 0 < str(error.value).index(text) <= (300 if "option" in text else 400)
        assert "Traceback" not in str(error.value)


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


def test_filters_bound_the_offsets_that_are_read(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    """The plan shows it: tasks exist only for partitions that may have rows of the result."""
    topic = make_topic(30)
    query = f"partition = 1 and offset >= 4 and timestamp < timestamp_millis({START_MS + 27})"
    since = f"partition > 0 and timestamp >= timestamp_millis({START_MS + 20})"

    def filtered(condition: str) -> tuple[list[str], int]:
        frame = read(spark, bootstrap, subscribe=topic, filterPushdown=True).where(condition)
        return values(frame), frame.rdd.getNumPartitions()

    without = [filtered(each)[0] for each in (query, since)]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert filtered(query) == (["v13", "v16", "v19", "v22", "v25"], 1)
        assert filtered(since) == (["v20", "v22", "v23", "v25", "v26", "v28", "v29"], 2)
        assert filtered("offset > 100") == ([], 1)
        assert filtered("value is not null")[1] == 3
        reused = read(spark, bootstrap, subscribe=topic)
        counts = [reused.where("partition = 0").count(), reused.count()]
        assert counts == [10, 30], "without the option, filters of one query bound no other"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert without == [
        ["v13", "v16", "v19", "v22", "v25"],
        ["v20", "v22", "v23", "v25", "v26", "v28", "v29"],
    ]


def test_a_stream_is_limited_in_bytes(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """A topic that was read from its start in one batch would need memory for all of it."""
    topic = make_topic(partitions=2)
    with Producer(bootstrap) as producer:
        for number in range(40):
            producer.send(topic, b"%05d" % number + bytes(100_000), partition=number % 2)
    limits = {"maxBytesPerTrigger": 1_000_000, "maxRecordsPerPartition": 3}
    stream = Stream(spark, bootstrap, tmp_path, subscribe=topic, **limits)

    assert [value[:5] for value in stream.run()] == [f"{number:05}" for number in range(40)]
    sizes = [progress["numInputRows"] for progress in stream.progress]
    assert len(sizes) == 4
    assert max(sizes) <= 12


def test_a_minimum_does_not_delay_available_now(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(5)
    limits = {"minOffsetsPerTrigger": 1000, "maxTriggerDelay": "1h"}
    stream = Stream(spark, bootstrap, tmp_path, subscribe=topic, **limits)
    assert len(stream.run()) == 5
    produce(bootstrap, topic, range(5, 7))
    assert stream.run() == ["v5", "v6"]


def test_topics_are_views_by_name(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(10)
    assert topic in attach(spark, bootstrap)
    counted = spark.sql(f"SELECT count(*), max(offset) FROM `{topic}` WHERE partition = 0")
    assert tuple(counted.collect()[0]) == (4, 3)
    produce(bootstrap, topic, range(10, 13))
    attach(spark, bootstrap, topics=[topic])
    assert spark.table(f"`{topic}`").count() == 13, "a view made again reads to the present end"


def test_the_largest_value_is_read_and_a_larger_one_is_refused_by_name(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    """A value far above all limits of one response, without a JVM, which needs a larger heap."""
    topic = make_topic(partitions=1)
    with Admin(bootstrap) as admin:
        limit = {"max.message.bytes": str(100 << 20)}
        admin.configs.alter(ResourceType.TOPIC, topic, limit)
    with Producer(bootstrap, max_request_bytes=100 << 20, buffer_bytes=256 << 20) as producer:
        for value in (b"small", b"x" * 60_000_000):
            producer.send(topic, value)
        producer.send(topic, bytes(100_000_000))
        with pytest.raises(ClientError, match="100000013 bytes of records, more than 67108864"):
            producer.flush()
    found = BatchQuery(bootstrap, topic, **{"kafka.fetch.max.bytes": "1000"}).run()
    assert [len(value) for value in found] == [5, 60_000_000]


def test_records_that_java_would_not_accept(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    """A header key that is not UTF-8 is readable; an impossible timestamp has a way out."""
    topic = make_topic(partitions=1)
    key, expected = b"a\xff\xc3(", "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}("
    with Admin(bootstrap) as admin:
        unlimited = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        admin.configs.alter(ResourceType.TOPIC, topic, unlimited)
    with WireClient(bootstrap) as wire:
        for timestamp in (START_MS, 10**17):
            builder = BatchBuilder()
            builder.append(timestamp, None, b"v", [("a??(", b"h")])
            batch = bytearray(builder.build().replace(b"a??(", key))
            batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
            assert wire_produce(wire, topic, bytes(batch)).error_code == 0

    good = read(
        spark,
        bootstrap,
        subscribe=topic,
        includeHeaders=True,
        endingOffsets=f'{{"{topic}":{{"0":1}}}}',
    )
    assert [row["headers"][0]["key"] for row in good.collect()] == [expected]
    named = rf"{topic}-0@1: the timestamp 100000000000000000 .*impossibleTimestamps=null"
    with pytest.raises(PySparkException, match=named):
        read(spark, bootstrap, subscribe=topic).collect()
    nulls = read(spark, bootstrap, subscribe=topic, impossibleTimestamps="null").orderBy("offset")
    assert [row["rawTimestamp"] for row in nulls.collect()] == [None, 10**17]
