"""Writes each micro-batch of `foreachBatch` in one transaction, with one producer id for all tasks.

```python
from lakelog.spark import write_to

counts.writeStream.outputMode("update").foreachBatch(
    write_to("counts", {"kafka.bootstrap.servers": "localhost:9092"})
).option("checkpointLocation", "/data/checkpoints/counts").start()
```

The driver begins the transaction, all tasks write into it with the driver's producer id, and the
driver commits it (`transaction.py`). Tasks share the sequences of one producer, so each partition
has one writer (`Router`), and a batch with a repeated task fails and is repeated by Spark.

A worker knows the number of its attempt within a stage. If Spark repeats a whole stage (after a
lost shuffle file), attempts count from 0 again, and tasks of both attempts may run at the same
time. Only the driver's status store knows that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.types import IntegerType, LongType, StructField, StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from lakelog.base.events import event
from lakelog.client.producer.api import Producer
from lakelog.client.producer.transactional import JoinedProducer
from lakelog.spark.sink.control import Batch, Content, Step, Tally, unnamed_sink
from lakelog.spark.sink.options import (
    Delivery,
    Repeated,
    RetriedTaskError,
    SinkOptions,
    parse_sink_options,
)
from lakelog.spark.sink.task import (
    ROUTED,
    Router,
    check_columns,
    named_errors,
    producer_settings,
    record_columns,
    write_rows,
)
from lakelog.spark.sink.transaction import BatchTransaction
from lakelog.tables.topic.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext
    from pyspark.sql import SparkSession


_STATUS_S = 30.0
_POLL_S = 0.005


class TaskResult(NamedTuple):
    """What one task of the writing stage returned."""

    stage: int
    partition: int
    rows: int
    digest: int

    @property
    def content(self) -> Content:
        """The rows that the task wrote."""
        return Content(self.rows, self.digest)


def check_single_attempts(
    results: Iterable[TaskResult],
    stage_info: Callable[[int], Any],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Content:
    """Return the content of the batch, if each partition of the stage was written by one task only.

    stage_info: `StatusTracker.getStageInfo`, whose answers lag behind the tasks. Raises
    `RetriedTaskError`.
    """
    tasks = list(results)
    places = [(task.stage, task.partition) for task in tasks]
    assert len(set(places)) == len(places), "Spark returned the result of a task twice"
    deadline = clock() + _STATUS_S
    for stage in {task.stage for task in tasks}:
        while not _is_complete(info := stage_info(stage)):
            if clock() >= deadline:
                raise RetriedTaskError(
                    f"Spark did not report stage {stage} as complete, and tasks may have run "
                    "twice: the batch is repeated"
                )
            sleep(_POLL_S)
        if info.currentAttemptId or info.numFailedTasks:
            raise RetriedTaskError(
                f"Spark repeated tasks of stage {stage} (attempt {info.currentAttemptId}, "
                f"{info.numFailedTasks} failed): the batch is repeated as a whole, because one "
                "transaction cannot distinguish the attempts"
            )
    return sum((task.content for task in tasks), Content())


def _is_complete(info: Any) -> bool:
    """Return whether the events up to the end of the stage have been processed."""
    return info is not None and not info.numActiveTasks and info.numCompletedTasks >= info.numTasks


_RESULT = StructType(
    [
        StructField("stage", IntegerType()),
        StructField("partition", IntegerType()),
        StructField("rows", LongType()),
        StructField("digest", LongType()),
    ]
)

_log = logging.getLogger(__name__)


def write_to(topic: str | None, options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that writes each batch exactly once.

    topic: for all rows, or `None` if the rows have a column `topic`. options: as for
    `writeStream.format("lakelog")`; `delivery` is exactly-once by default. Raises `OptionError`.
    The function raises `SinkError`, `OptionError`, and errors of the client; Spark then stops the
    query, and the next start repeats the batch.
    """
    given = dict(options) | ({"topic": topic} if topic else {})
    parsed = parse_sink_options(given, delivery=Delivery.EXACTLY_ONCE)
    if parsed.delivery is Delivery.AT_LEAST_ONCE:
        return partial(_append, given)
    return partial(write_batch, parsed)


def _append(options: Mapping[str, str], frame: DataFrame, _: int) -> None:
    frame.write.format("lakelog").options(**options).mode("append").save()


def write_batch(options: SinkOptions, frame: DataFrame, number: int) -> None:
    """Write one micro-batch, unless it is committed already.

    Raises as the function of `write_to`.
    """
    check_columns(frame.schema, options.topic)
    batch = _running_batch(frame.sparkSession, number)
    sink_id = options.sink_id or batch.query_id
    with named_errors(options), BatchTransaction(options, sink_id, batch) as transaction:
        if transaction.begin() is Step.SKIP:
            if options.repeated is not Repeated.ANY:
                transaction.check_repeated(_content(options, frame, number))
            _log.info("Batch %d is committed", number, extra=event("sink_batch_skipped"))
            return
        if transaction.is_first and not options.sink_id:
            _log.warning(unnamed_sink(batch.query_id), extra=event("sink_unnamed"))
        transaction.commit(_write(options, frame, transaction, number))


@dataclass(frozen=True)
class _Route:
    """The first pass over the rows, in each task; a value, because Spark pickles it."""

    options: SinkOptions
    number: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        with named_errors(self.options), _producer(self.options) as topics:
            router = Router(self.options.topic, topics.partitions, self.number + task.partitionId())
            for batch in batches:
                yield router.route(batch)


@dataclass(frozen=True)
class _Write:
    """The second pass, in each task."""

    options: SinkOptions
    transactional_id: str
    identity: tuple[int, int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber():
            raise RetriedTaskError(
                "a task of the batch failed, and Spark repeats it: the batch is repeated as a "
                "whole instead, because one transaction cannot distinguish the attempts"
            )
        open_producer = partial(
            JoinedProducer,
            self.options.bootstrap,
            self.transactional_id,
            self.identity,
            **producer_settings(self.options),
        )
        tally = Tally(self.options.topic)
        write_rows(tally.counted(batches), open_producer, self.options)
        yield _result(task, tally.content)


@dataclass(frozen=True)
class _Count:
    """The second pass over the rows of a batch that is committed already: writes nothing."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        tally = Tally(None)
        for _ in tally.counted(batches):
            pass
        yield _result(task, tally.content)


def _result(task: TaskContext, content: Content) -> pa.RecordBatch:
    """Return the row of `_RESULT` of one task."""
    import pyarrow as pa

    return pa.RecordBatch.from_pydict(
        {
            "stage": pa.array([task.stageId()], pa.int32()),
            "partition": pa.array([task.partitionId()], pa.int32()),
            "rows": pa.array([content.rows], pa.int64()),
            "digest": pa.array([content.digest], pa.int64()),
        }
    )


def _routed(options: SinkOptions, frame: DataFrame, number: int) -> DataFrame:
    """Return the rows with the topic and partition of each, and without other columns."""
    rows = frame.select(*record_columns(frame.columns))
    return _map_in_arrow(rows, _Route(options, number), ROUTED)


def _content(options: SinkOptions, frame: DataFrame, number: int) -> Content:
    """Return the content of a batch without writing it."""
    routed = _routed(options, frame, number)
    results = _map_in_arrow(routed, _Count(), _RESULT).collect()
    return sum((TaskResult(*row).content for row in results), Content())


def _write(
    options: SinkOptions, frame: DataFrame, transaction: BatchTransaction, number: int
) -> Content:
    """Write the rows into the transaction; return their content."""
    context = frame.sparkSession.sparkContext
    routed = _routed(options, frame, number)
    spread = routed.repartition(context.defaultParallelism, "topic", "partition")
    # From here on the column is the topic.
    writer = _Write(replace(options, topic=None), transaction.transactional_id, transaction.share())
    try:
        results = _map_in_arrow(spread, writer, _RESULT).collect()
    except Exception as error:
        if transaction.is_overdue:
            raise transaction.fenced(error) from error
        raise
    return check_single_attempts(
        (TaskResult(*row) for row in results), context.statusTracker().getStageInfo
    )


def _map_in_arrow(
    frame: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType,
) -> DataFrame:
    """Return `frame.mapInArrow(function, schema)`, without its check that pandas is installed.

    Neither Spark nor the functions need pandas for Arrow batches.
    """
    udf = UserDefinedFunction(
        function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    columns = udf(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(columns._jc, False, None), frame.sparkSession)


def _producer(options: SinkOptions) -> Producer:
    return Producer(options.bootstrap, **producer_settings(options))


def _running_batch(session: SparkSession, number: int) -> Batch:
    """Return the batch that calls this function. Raises `OptionError`."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise OptionError(
            "write_to() does not work over Spark Connect, where the query id is not known: use "
            "writeStream.format('lakelog') with the option 'delivery' exactly-once"
        )
    context = session.sparkContext
    if context.getConf().get("spark.speculation", "false") == "true":
        raise OptionError(
            "write_to() requires spark.speculation=false, because each partition must have one "
            "writer: use writeStream.format('lakelog') with the option 'delivery' exactly-once"
        )
    query_id = context.getLocalProperty("sql.streaming.queryId")
    if query_id is None:
        raise OptionError("the function of write_to() works within foreachBatch only")
    return Batch(query_id, context.getLocalProperty("spark.jobGroup.id") or "", number)
