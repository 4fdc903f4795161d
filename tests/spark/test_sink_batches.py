"""`foreachBatch` with `write_to`: each micro-batch is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from broker_process import eventually
from lakelog.client.admin import Admin
from lakelog.client.cluster import Cluster
from lakelog.client.committed import fetch_committed
from lakelog.client.producer.transactional import TransactionalProducer
from lakelog.spark import write_to
from lakelog.spark.sink import shared
from lakelog.spark.sink.control import Control
from lakelog.spark.sink.transaction import CONTROL_TOPIC
from spark.queries import read, values
from spark.topics import MakeTopic, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.spark,
    # Of mapInArrow, which some tests use, but not the sink.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


class Copy:
    """A query that copies a topic in batches of ten records, to the present end each time."""

    def __init__(
        self, spark: SparkSession, bootstrap: str, source: str, folder: Path, **source_options: Any
    ) -> None:
        self.spark, self.source, self.folder = spark, source, folder
        self.broker = {"kafka.bootstrap.servers": bootstrap}
        self.source_options = source_options

    def run(
        self,
        target: str | None,
        columns: Sequence[str] = ("key", "value"),
        options: Mapping[str, str] | None = None,
        change: Callable[[Any], Any] | None = None,
    ) -> StreamingQuery:
        """Run the query. change: of the Arrow batches of each task, before the sink."""
        sink = write_to(target, self.broker | dict(options or {}))

        def write(frame: DataFrame, number: int) -> None:
            changed = frame if change is None else frame.mapInArrow(change, frame.schema)
            sink(changed, number)

        rows = (
            self.spark.readStream.format("lakelog")
            .options(**self.broker, **self.source_options)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 10)
            .load()
        )
        query = (
            rows.selectExpr(*columns)
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(self.folder))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def forget_last_commit(self) -> None:
        """Put the checkpoint into the state after a crash between the sink's commit and Spark's."""
        commits = self.folder / "commits"
        last = max((path for path in commits.glob("[0-9]*")), key=lambda path: int(path.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)


def control(bootstrap: str, sink_id: str) -> Control:
    with Cluster(bootstrap) as cluster:
        (row,) = fetch_committed(cluster, f"lk-sink-{sink_id}", [(CONTROL_TOPIC, 0)]).values()
    return Control.from_text(row.offset, row.metadata)


@pytest.fixture
def copy(spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> Copy:
    return Copy(spark, bootstrap, make_topic(25), tmp_path)


def test_a_committed_batch_is_not_written_again(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, copy: Copy
) -> None:
    target = make_topic()
    query = copy.run(target)
    found = control(bootstrap, str(query.id))
    assert (found.query_id, found.run_id) == (str(query.id), str(query.runId))
    assert found.next_batch == 3
    assert 0 < found.rows <= 12

    copy.forget_last_commit()
    produce(bootstrap, copy.source, range(25, 30))
    copy.run(target)

    expected = sorted(f"v{i}" for i in range(30))
    assert values(read(spark, bootstrap, subscribe=target)) == expected
    assert control(bootstrap, str(query.id)).next_batch == 4


def test_records_keep_their_keys_partitions_and_columns(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, copy: Copy
) -> None:
    target = make_topic(partitions=5)
    copy.source_options = {"includeHeaders": "true"}
    routed = [f"'{target}' AS topic", "partition + 1 AS partition"]
    copy.run(None, ["key", "value", "headers", "timestamp", *routed])

    columns = ["partition", "key", "value", "headers", "timestamp"]
    rows = read(spark, bootstrap, subscribe=copy.source, includeHeaders=True).collect()
    back = read(spark, bootstrap, subscribe=target, includeHeaders=True).collect()
    wanted = sorted(
        str([row["partition"] + 1, *(row[name] for name in columns[1:])]) for row in rows
    )
    assert sorted(str([row[name] for name in columns]) for row in back) == wanted


def test_an_empty_batch_advances_the_sink(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, copy: Copy
) -> None:
    target = make_topic()
    rows = (
        spark.readStream.format("lakelog")
        .options(**copy.broker)
        .option("subscribe", copy.source)
        .option("startingOffsets", "earliest")
        .load()
        .where("offset < 0")
    )
    query = (
        rows.select("value")
        .writeStream.foreachBatch(write_to(target, copy.broker | {"sinkId": f"{target}-empty"}))
        .option("checkpointLocation", str(copy.folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = control(bootstrap, f"{target}-empty")
    assert (found.next_batch, found.rows) == (1, 0)


def test_a_new_checkpoint_needs_a_new_generation(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, copy: Copy
) -> None:
    target, first = make_topic(), copy.folder
    sink = {"sinkId": f"{target}-sink"}
    copy.run(target, options=sink)
    copy.folder = first / "second"

    with pytest.raises(StreamingQueryException, match=r"OtherQueryError.*'sinkGeneration' to 1"):
        copy.run(target, options=sink)
    assert len(values(read(spark, bootstrap, subscribe=target))) == 25

    copy.run(target, options=sink | {"sinkGeneration": "1"})
    assert len(values(read(spark, bootstrap, subscribe=target))) == 50
    found = control(bootstrap, sink["sinkId"])
    assert (found.generation, found.next_batch) == (1, 3)

    copy.folder = first
    produce(bootstrap, copy.source, range(25, 30))
    with pytest.raises(StreamingQueryException, match="OldGenerationError"):
        copy.run(target, options=sink)


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (["cast(null AS string) AS topic", "value"], {}, "a row has no topic: set the option"),
        (["'{target}' AS topic", "value", "9 AS partition"], {}, "'partition' is 9, but topic"),
        (
            ["'{target}' AS topic", "repeat('x', 2000) AS value"],
            {"kafka.max.request.size": "1024"},
            "'kafka.max.request.size'",
        ),
    ],
)
def test_a_bad_row_is_named_and_its_batch_is_not_visible(
    spark: SparkSession,
    bootstrap: str,
    make_topic: MakeTopic,
    copy: Copy,
    columns: list[str],
    options: dict[str, str],
    text: str,
) -> None:
    target = make_topic()
    with pytest.raises(StreamingQueryException, match=text):
        copy.run(None, [column.format(target=target) for column in columns], options)
    assert values(read(spark, bootstrap, subscribe=target)) == []


def test_a_batch_that_outlasts_its_transaction_names_the_option(
    spark: SparkSession,
    bootstrap: str,
    make_topic: MakeTopic,
    copy: Copy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = make_topic()
    sink_id = f"{target}-slow"

    def slow(*_: Any) -> int:
        """Return from the tasks after the broker has aborted the transaction."""
        with Admin(bootstrap) as admin:
            name = f"lk-sink-{sink_id}"
            eventually(
                lambda: "Abort" in admin.transactions.describe(name).state, 120.0, "no abort"
            )
        return 0

    monkeypatch.setattr(shared, "check_single_attempts", slow)
    options = {"kafka.transaction.timeout.ms": "1000", "sinkId": sink_id}
    with pytest.raises(StreamingQueryException, match=r"'kafka.transaction.timeout.ms' \(1000\)"):
        copy.run(target, options=options)
    assert values(read(spark, bootstrap, subscribe=target)) == []


def test_an_older_driver_cannot_commit(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, copy: Copy
) -> None:
    """A driver that stopped for a while finds another one on its sink id."""
    target = make_topic()
    sink_id = f"{target}-sink"

    def usurp(batches: Any) -> Any:
        with TransactionalProducer(bootstrap, f"lk-sink-{sink_id}") as other:
            other.begin()
        yield from batches

    with pytest.raises(StreamingQueryException, match=r"(?i)fenced|newer producer"):
        copy.run(target, options={"sinkId": sink_id}, change=usurp)
    assert values(read(spark, bootstrap, subscribe=target)) == []
