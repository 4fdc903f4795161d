"""`delivery=exactly-once`: micro-batches and batch writes as commit sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from lakelog.client.sink import Sink, SinkControl
from spark.queries import read, values
from spark.sink_copies import ROUTED, Copy
from spark.topics import MakeTopic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


def status(bootstrap: str, name: str) -> SinkControl | None:
    with Sink(bootstrap, f"lk-sink-{name}") as sink:
        return sink.read()


@pytest.fixture
def copy(spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> Copy:
    return Copy(spark, bootstrap, make_topic(25), tmp_path)


def test_a_committed_batch_is_not_written_again(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, copy: Copy
) -> None:
    target = make_topic()
    query = copy.stream(target)
    found = status(bootstrap, str(query.id))
    assert found is not None
    assert (found.query_id, found.run_id) == (str(query.id), str(query.runId))
    assert (found.next_batch, found.children) == (3, ())

    copy.forget_last_commit()
    produce(bootstrap, copy.source, range(25, 30))
    copy.stream(target)

    expected = sorted(f"v{i}" for i in range(30))
    assert values(read(spark, bootstrap, subscribe=target)) == expected
    again = status(bootstrap, str(query.id))
    assert again is not None
    assert again.next_batch == 4
    assert again.run_id != found.run_id


@pytest.mark.parametrize("where", ["false", "value = 'none'"])
def test_batches_without_rows_count_too(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, copy: Copy, where: str
) -> None:
    """With `false` Spark plans no task, and runs one all the same."""
    target = make_topic()
    query = copy.stream(target, where=where)
    found = status(bootstrap, str(query.id))
    assert found is not None
    assert found.next_batch == 3
    produce(bootstrap, copy.source, range(25, 30))
    copy.stream(target)
    found = status(bootstrap, str(query.id))
    assert found is not None
    assert found.next_batch == 4
    assert values(read(spark, bootstrap, subscribe=target)) == [f"v{i}" for i in range(25, 30)]


def test_a_checkpoint_that_is_one_batch_behind_stops_the_query(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, copy: Copy
) -> None:
    """The last batch had one row; made again from a restored checkpoint it has 12."""
    target = make_topic()
    sink = {"sinkId": f"{target}-sink"}
    copy.stream(target, options=sink)
    copy.forget_last_batch()
    produce(bootstrap, copy.source, range(25, 45))

    with pytest.raises(
        StreamingQueryException,
        match=r"BatchOrderError: batch 2 .* 1 row, .* 12 rows: .*'sinkGeneration'",
    ):
        copy.stream(target, options=sink)
    assert len(values(read(spark, bootstrap, subscribe=target))) == 25

    copy.stream(target, options=sink | {"sinkGeneration": "1"})
    found = values(read(spark, bootstrap, subscribe=target))
    assert (len(found), set(found)) == (46, {f"v{i}" for i in range(45)})


def test_records_keep_every_column(make_topic: MakeTopic, copy: Copy) -> None:
    target = make_topic(partitions=5)
    copy.stream(None, [*ROUTED, f"'{target}' AS topic"])
    copy.check_routed(target)


def test_a_new_checkpoint_needs_a_new_generation(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, copy: Copy
) -> None:
    target, first = make_topic(), copy.folder
    sink = {"sinkId": f"{target}-sink"}
    copy.stream(target, options=sink)
    copy.folder = first / "second"

    with pytest.raises(StreamingQueryException, match=r"OtherQueryError.*'sinkGeneration'"):
        copy.stream(target, options=sink)
    assert len(values(read(spark, bootstrap, subscribe=target))) == 25

    copy.stream(target, options=sink | {"sinkGeneration": "1"})
    assert len(values(read(spark, bootstrap, subscribe=target))) == 50

    copy.folder = first
    produce(bootstrap, copy.source, range(25, 30))
    with pytest.raises(StreamingQueryException, match=r"OldGenerationError.*at generation 1"):
        copy.stream(target, options=sink)
    assert len(values(read(spark, bootstrap, subscribe=target))) == 50


def test_a_bad_row_is_named_and_its_batch_is_not_visible(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, copy: Copy
) -> None:
    target = make_topic()
    rows = [f"if(offset = 2, null, '{target}') AS topic", "value"]
    with pytest.raises(
        StreamingQueryException, match=r"RowError: column 'topic': row .* the topic is null"
    ):
        copy.stream(None, rows)
    large = ["repeat(cast(value AS string), 40000000) AS value"]
    with pytest.raises(StreamingQueryException, match=r"RowError.*'kafka.max.request.size'"):
        copy.stream(target, large, {"sinkId": f"{target}-large"})
    assert values(read(spark, bootstrap, subscribe=target)) == []


def test_a_batch_write_is_all_or_nothing_and_happens_once(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    target = make_topic()

    def write(query: str, **options: str) -> None:
        writer = spark.sql(query).repartition(4).write.format("lakelog").mode("append")
        broker = {"kafka.bootstrap.servers": bootstrap, "topic": target}
        writer.options(**broker, delivery="exactly-once", **options).save()

    bad = "SELECT cast(id AS string) AS value, if(id = 19, 99, 0) AS partition FROM range(20)"
    with pytest.raises(PySparkException, match="column 'partition'"):
        write(bad, writeId=f"{target}-1")
    assert values(read(spark, bootstrap, subscribe=target)) == []

    for _ in range(2):
        write("SELECT cast(id AS string) AS value FROM range(20)", writeId=f"{target}-1")
    assert values(read(spark, bootstrap, subscribe=target)) == sorted(map(str, range(20)))

    write("SELECT 'more' AS value")
    assert len(values(read(spark, bootstrap, subscribe=target))) == 21
