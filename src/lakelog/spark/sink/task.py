"""Writes the rows of one task, and names the option or column for errors of the producer.

Columns are as in the official connector. A row has a value, and optionally key, topic,
partition, headers and timestamp. Other columns are ignored, so that the rows of a topic can be
written with all columns of the source.

All tasks of a transaction with one producer id share its sequences, so each topic-partition must
have one writer: a `Router` adds topic and partition in a first pass over the rows, Spark shuffles
by these, and a second pass writes. Rows with a partition keep it, rows with a key go where Java's
producer sends the key, and other rows are dealt to the partitions in runs, which compress better
than single rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakelog.base.errors import ErrorCode
from lakelog.base.murmur2 import partition_for_key
from lakelog.client.errors import ClientError, NotWrittenError, TopicNotFoundError
from lakelog.client.producer.api import Producer
from lakelog.spark.python_processes import exempt_modules
from lakelog.spark.schema import HEADERS_TYPE, arrow_schema
from lakelog.spark.sink.options import FencedError, RowError, SinkError, SinkOptions
from lakelog.tables.topic.errors import OptionError

_BYTES: tuple[DataType, ...] = (BinaryType(), StringType())
_ACCEPTED: dict[str, tuple[DataType, ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS_TYPE,),
    "timestamp": (TimestampType(), LongType()),
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check the columns of a query. topic: the option. Raises `OptionError`."""
    for field in schema:
        accepted = _ACCEPTED.get(field.name)
        if accepted is None:
            continue
        if not any(_same_shape(field.dataType, data_type) for data_type in accepted):
            expected = " or ".join(data_type.simpleString() for data_type in accepted)
            raise OptionError(
                f"column {field.name!r} must be {expected}, not {field.dataType.simpleString()}"
            )
    if "value" not in schema.fieldNames():
        raise OptionError("missing column 'value'")
    if topic is None and "topic" not in schema.fieldNames():
        raise OptionError("missing topic: set the option 'topic' or add a column 'topic'")


def record_columns(names: Iterable[str]) -> list[str]:
    """Return the names of columns that a record has."""
    return [name for name in names if name in _ACCEPTED]


def _same_shape(given: DataType, accepted: DataType) -> bool:
    """Return whether two types are equal apart from nullability, which expressions change."""
    return bool(given.simpleString() == accepted.simpleString())


def _values(name: str, column: pa.Array) -> list[Any]:
    if name in ("key", "value"):
        return list(column.cast(pa.binary()).to_pylist())
    if name == "timestamp" and pa.types.is_timestamp(column.type):
        return list(column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64()).to_pylist())
    return list(column.to_pylist())


ROUTED = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS_TYPE),
        StructField("timestamp", LongType()),
    ]
)
"""The columns after routing: topic and partition are never null, timestamp is in milliseconds."""

_RUN = 256


class Router:
    """Adds topic and partition to the rows of one task.

    topic: the option, which takes precedence over the column. partitions: returns the number of
    partitions of a topic. start: selects the first partition of rows without a key.
    """

    def __init__(self, topic: str | None, partitions: Callable[[str], int], start: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._dealt = start * _RUN

    def route(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the columns of `ROUTED`. Raises `RowError`."""
        nothing: list[Any] = [None] * batch.num_rows
        columns = dict.fromkeys(ROUTED.fieldNames(), nothing)
        columns |= {name: _values(name, batch.column(name)) for name in batch.schema.names}
        if self._topic:
            columns["topic"] = [self._topic] * batch.num_rows
        if None in columns["topic"]:
            raise RowError("a row has no topic: set the option 'topic', or fill the column 'topic'")
        rows = zip(*(columns[name] for name in ("topic", "partition", "key")), strict=True)
        columns["partition"] = [self._choose(*row) for row in rows]
        columns["headers"] = [headers or None for headers in columns["headers"]]
        return pa.RecordBatch.from_pydict(columns, schema=arrow_schema(ROUTED))

    def _choose(self, topic: str, partition: int | None, key: bytes | None) -> int:
        count = self._partitions(topic)
        if partition is None:
            if key is not None:
                return partition_for_key(key, count)
            self._dealt += 1
            return self._dealt // _RUN % count
        if not 0 <= partition < count:
            raise RowError(
                f"a row's column 'partition' is {partition}, but topic {topic!r} has "
                f"{count} partition{'s'[: count > 1]}"
            )
        return partition


FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Codes for a producer whose transaction ended without it (45 to 49, 90 of the protocol)."""


def producer_settings(options: SinkOptions) -> dict[str, Any]:
    """Return the settings of a `Producer` that all kinds of delivery share."""
    return {
        "compression": options.compression,
        "max_request_bytes": options.request_bytes_max,
        "client_id": options.client_id,
    }


def write_rows(
    batches: Iterable[pa.RecordBatch],
    open_producer: Callable[[], AbstractContextManager[Producer]],
    options: SinkOptions,
) -> int:
    """Write all rows; return their number after the brokers acknowledged all of them.

    Raises `SinkError` if an option or a row is at fault, and the first other error of a delivery.
    """
    written = 0
    with named_errors(options), open_producer() as producer:
        for batch in batches:
            producer.send_table(batch.select(record_columns(batch.schema.names)), options.topic)
            written += batch.num_rows
        # Raises the first failure of any record.
        producer.flush()
    exempt_modules()
    return written


@contextmanager
def named_errors(options: SinkOptions) -> Iterator[None]:
    """Raise `SinkError` with the name of an option or column instead of a `ClientError`."""
    try:
        yield
    except ClientError as error:
        raise _named(error, options) from error


def _named(error: ClientError, options: SinkOptions) -> Exception:
    if isinstance(error, TopicNotFoundError):
        hint = f" {error.hint}" if error.hint else ""
        what = "option 'topic'" if options.topic else "column 'topic'"
        return RowError(f"{error.message}: create it, or correct the {what}.{hint}")
    if error.code is ErrorCode.INVALID_TOPIC_EXCEPTION and not options.topic:
        return RowError(f"column 'topic': {error.message}: fill it, or set the option 'topic'")
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and isinstance(error, NotWrittenError):
        return RowError(f"column 'partition': {error.message}")
    if error.code is ErrorCode.INVALID_RECORD:
        return RowError(_refused(error.message))
    if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return RowError(
            f"{error.message}: raise the option 'kafka.max.request.size' "
            f"({options.request_bytes_max} bytes) and max.message.bytes of the topic"
        )
    if error.code is ErrorCode.INVALID_TIMESTAMP:
        return RowError(f"column 'timestamp': {error.message}")
    if error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return SinkError(
            f"option 'kafka.transaction.timeout.ms' ({options.transaction_timeout_ms}) is above "
            "transaction.max.timeout.ms of the broker: lower the option or raise the broker's limit"
        )
    return error


def _refused(message: str) -> str:
    """Return the text for a record that breaks a rule of the topic or of the broker."""
    if "header" in message:
        return f"column 'headers': {message}"
    if "key" in message:  # a compacted topic, of lakelog or of Apache Kafka
        return f"column 'key': {message}: fill it, or change cleanup.policy of the topic"
    return f"the broker rejects a row: {message}"


def fenced(error: Exception, options: SinkOptions, elapsed_ms: float) -> FencedError:
    """Return the error of a producer whose transaction ended without it.

    elapsed_ms: since the transaction began.
    """
    if elapsed_ms >= options.transaction_timeout_ms:
        return FencedError(
            f"the batch took {elapsed_ms / 1000:.1f} s, longer than the option "
            f"'kafka.transaction.timeout.ms' ({options.transaction_timeout_ms}), so the broker "
            "aborted it: raise the option (and transaction.max.timeout.ms of the broker), or make "
            "batches smaller with the source's 'maxOffsetsPerTrigger'"
        )
    return FencedError(
        f"another run of the query has taken over the sink ({error}): stop one of them, or give "
        "each its own 'sinkId'"
    )
