from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from lakelog.client.admin import Admin, ResourceType
from lakelog.spark import write_to
from spark.topics import START_MS, MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

ROWS = """
    SELECT cast('k' AS binary) AS key, cast('a' AS binary) AS value, '{topic}' AS topic,
        2 AS partition, timestamp_millis({at} + 123) AS timestamp,
        array(struct('h' AS key, cast('x' AS binary) AS value)) AS headers
    UNION ALL
    SELECT NULL, cast('' AS binary), '{topic}', 0, timestamp_millis({at} + 456), NULL
    UNION ALL
    SELECT cast('k' AS binary), NULL, '{topic}', 0, timestamp_millis({at} + 789), NULL
"""


def test_every_column_of_a_record_is_written(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    rows = spark.sql(ROWS.format(topic=topic, at=START_MS)).coalesce(1)

    rows.write.format("lakelog").option("kafka.bootstrap.servers", bootstrap).mode("append").save()

    back = (
        spark.read.format("lakelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("columns", "partition,offset,key,value,timestamp,headers")
        .load()
    )
    found = [row.asDict(recursive=True) for row in back.orderBy("partition", "offset").collect()]
    times = [round(row.pop("timestamp").timestamp() * 1000) for row in found]
    assert times == [START_MS + 456, START_MS + 789, START_MS + 123]
    assert found == [
        {"partition": 0, "offset": 0, "key": None, "value": b"", "headers": None},
        {"partition": 0, "offset": 1, "key": b"k", "value": None, "headers": None},
        {
            "partition": 2,
            "offset": 0,
            "key": b"k",
            "value": b"a",
            "headers": [{"key": "h", "value": b"x"}],
        },
    ]


def test_a_stream_goes_from_topic_to_topic(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(20), make_topic()
    lines = (
        spark.readStream.format("lakelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        lines.selectExpr("key", "upper(cast(value AS string)) AS value")
        .writeStream.format("lakelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.compression.type", "zstd")
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    back = spark.read.format("lakelog").option("kafka.bootstrap.servers", bootstrap)
    rows = back.option("subscribe", target).load().select("value").collect()
    assert sorted(row["value"].decode() for row in rows) == sorted(f"V{i}" for i in range(20))


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once", "foreachBatch"])
def test_a_topic_is_copied_with_all_columns_of_the_source(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path, delivery: str
) -> None:
    """As with the official connector, which ignores the columns that a record does not have."""
    source, target = make_topic(20), make_topic()
    to = {"kafka.bootstrap.servers": bootstrap, "topic": target}
    reader = spark.readStream.format("lakelog").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
    if delivery == "foreachBatch":
        writer = rows.writeStream.foreachBatch(write_to(target, to))
    else:
        writer = rows.writeStream.format("lakelog").options(**to, delivery=delivery)
    writer.option("checkpointLocation", str(tmp_path)).trigger(
        availableNow=True
    ).start().awaitTermination()

    def read(topic: str) -> list[tuple[object, ...]]:
        back = spark.read.format("lakelog").option("kafka.bootstrap.servers", bootstrap)
        found = back.option("subscribe", topic).load().select("partition", "value", "timestamp")
        return sorted(tuple(row) for row in found.collect())

    assert read(target) == read(source)
    assert len(read(target)) == 20


def test_a_compacted_topic_needs_keys(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Admin(bootstrap) as admin:
        admin.configs.alter(ResourceType.TOPIC, topic, {"cleanup.policy": "compact"})
    writer = spark.sql("SELECT 'x' AS value").write.format("lakelog").option("topic", topic)
    with pytest.raises(PySparkException, match=r"RowError: column 'key': .* without a key.*: fill"):
        writer.option("kafka.bootstrap.servers", bootstrap).mode("append").save()


@pytest.mark.parametrize(
    ("query", "mode", "text"),
    [
        ("SELECT 'x' AS value", "overwrite", 'use .mode."append".'),
        ("SELECT 'x' AS key", "append", "missing column 'value'"),
        ("SELECT 1 AS value", "append", "must be binary or string, not int"),
    ],
)
def test_what_cannot_be_written_is_refused(
    spark: SparkSession, bootstrap: str, query: str, mode: str, text: str
) -> None:
    writer = spark.sql(query).write.format("lakelog").option("topic", "t").mode(mode)
    with pytest.raises(PySparkException, match=text):
        writer.option("kafka.bootstrap.servers", bootstrap).save()
