"""`foreachBatch` with `write_to`: each micro-batch is one transaction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from lakelog.client.admin import Admin
from lakelog.client.cluster import Cluster
from lakelog.client.committed import fetch_committed
from lakelog.client.producer.transactional import TransactionalProducer
from lakelog.protocol.commit_sets import SINK_TOPIC
from lakelog.spark.sink import shared
from lakelog.spark.sink.control import Content, Control
from spark.queries import read, values
from spark.sink_copies import ROUTED, Copy
from spark.topics import MakeTopic, produce
from waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    # Of mapInArrow, which some tests use, but not the sink.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


def control(bootstrap: str, sink_id: str) -> Control:
    with Cluster(bootstrap) as cluster:
        (row,) = fetch_committed(cluster, f"lk-sink-{sink_id}", [(SINK_TOPIC, 0)]).values()
    return Control.from_text(row.offset, row.metadata)


@pytest.fixture
def copy(spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> Copy:
    return Copy(spark, bootstrap, make_topic(25), tmp_path)


def test_a_committed_batch_is_not_written_again(
    spark: SparkSession,
    bootstrap: str,
    make_topic: MakeTopic,
    copy: Copy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    target = make_topic()
    query = copy.foreach_batch(target)
    found = control(bootstrap, str(query.id))
    assert (found.query_id, found.run_id) == (str(query.id), str(query.runId))
    assert found.next_batch == 3
    assert found.content is not None
    assert 0 < found.content.rows <= 12

    assert caplog.text.count("begins a new sink") == 1

    copy.forget_last_commit()
    produce(bootstrap, copy.source, range(25, 30))
    copy.foreach_batch(target)

    expected = sorted(f"v{i}" for i in range(30))
    assert values(read(spark, bootstrap, subscribe=target)) == expected
    assert control(bootstrap, str(query.id)).next_batch == 4
    assert caplog.text.count("begins a new sink") == 1


def test_a_checkpoint_that_is_one_batch_behind_stops_the_query(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, copy: Copy
) -> None:
    """The last batch had one row; made again from a restored checkpoint it has 12."""
    target = make_topic()
    sink = {"sinkId": f"{target}-sink"}
    copy.foreach_batch(target, options=sink)
    copy.forget_last_batch()
    produce(bootstrap, copy.source, range(25, 45))

    with pytest.raises(
        StreamingQueryException,
        match=r"BatchOrderError: batch 2 .* 1 row, .* 12 rows: .*'sinkGeneration'",
    ):
        copy.foreach_batch(target, options=sink)
    assert len(values(read(spark, bootstrap, subscribe=target))) == 25

    copy.foreach_batch(target, options=sink | {"sinkGeneration": "1"})
    found = values(read(spark, bootstrap, subscribe=target))
    assert (len(found), set(found)) == (46, {f"v{i}" for i in range(45)})


def test_records_keep_their_keys_partitions_and_columns(make_topic: MakeTopic, copy: Copy) -> None:
    target = make_topic(partitions=5)
    copy.foreach_batch(None, [*ROUTED, f"'{target}' AS topic"])
    copy.check_routed(target)


def test_an_empty_batch_advances_the_sink(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, copy: Copy
) -> None:
    target = make_topic()
    sink_id = f"{target}-empty"

    def drop(batches: Any) -> Any:
        return (batch.slice(0, 0) for batch in batches)

    copy.foreach_batch(target, options={"sinkId": sink_id}, change=drop)
    found = control(bootstrap, sink_id)
    assert (found.next_batch, found.content) == (3, Content(0, 0))


def test_a_new_checkpoint_needs_a_new_generation(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, copy: Copy
) -> None:
    target, first = make_topic(), copy.folder
    sink = {"sinkId": f"{target}-sink"}
    copy.foreach_batch(target, options=sink)
    copy.folder = first / "second"

    with pytest.raises(StreamingQueryException, match=r"OtherQueryError.*'sinkGeneration' to 1"):
        copy.foreach_batch(target, options=sink)
    assert len(values(read(spark, bootstrap, subscribe=target))) == 25

    copy.foreach_batch(target, options=sink | {"sinkGeneration": "1"})
    assert len(values(read(spark, bootstrap, subscribe=target))) == 50
    found = control(bootstrap, sink["sinkId"])
    assert (found.generation, found.next_batch) == (1, 3)

    copy.folder = first
    produce(bootstrap, copy.source, range(25, 30))
    with pytest.raises(StreamingQueryException, match="OldGenerationError"):
        copy.foreach_batch(target, options=sink)


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
        copy.foreach_batch(None, [column.format(target=target) for column in columns], options)
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

    def slow(*_: Any) -> Content:
        """Return from the tasks after the broker has aborted the transaction."""
        with Admin(bootstrap) as admin:
            name = f"lk-sink-{sink_id}"
            eventually(
                lambda: "Abort" in admin.transactions.describe(name).state, 120.0, "no abort"
            )
        return Content()

    monkeypatch.setattr(shared, "check_single_attempts", slow)
    options = {"kafka.transaction.timeout.ms": "1000", "sinkId": sink_id}
    with pytest.raises(StreamingQueryException, match=r"'kafka.transaction.timeout.ms' \(1000\)"):
        copy.foreach_batch(target, options=options)
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
        copy.foreach_batch(target, options={"sinkId": sink_id}, change=usurp)
    assert values(read(spark, bootstrap, subscribe=target)) == []
