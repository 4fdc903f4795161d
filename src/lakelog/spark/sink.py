"""The sink: writes rows as records with an idempotent producer, at least once.

A task that fails and runs again writes its rows again, and so does a micro-batch that Spark repeats
after a crash: producers know nothing of a query's batches. Columns are the same as in the official
connector: value, and optionally key, topic, partition, headers, timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from lakelog.client.producer.api import Producer
from lakelog.spark.options import OptionReader
from lakelog.spark.schema import HEADERS_TYPE
from lakelog.tables.topic.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lakelog.client.producer.results import Delivery

_BYTES: tuple[DataType, ...] = (BinaryType(), StringType())
_ACCEPTED: dict[str, tuple[DataType, ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS_TYPE,),
    "timestamp": (TimestampType(), LongType()),
}
_NAMES = (
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.acks",
    "kafka.compression.type",
    "kafka.max.request.size",
    "topic",
    "includeHeaders",
)

_IN_FLIGHT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class SinkOptions:
    bootstrap: str
    topic: str | None = None
    compression: str = "none"
    acks: int = -1
    request_bytes_max: int = 1 << 20
    client_id: str = "lakelog-spark"


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """The number of records that one task wrote."""

    records: int


class _Writing:
    """Writing of one task's rows, common to batch and streaming queries."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows; return after the broker acknowledged all of them.

        Raises the first error of a delivery.
        """
        written = 0
        with Producer(
            self._options.bootstrap,
            acks=self._options.acks,
            compression=self._options.compression,
            max_request_bytes=self._options.request_bytes_max,
            client_id=self._options.client_id,
        ) as producer:
            pending: list[Delivery] = []
            for batch in iterator:
                for record in _records(batch, self._options.topic):
                    pending.append(producer.send(**record))
                    if len(pending) >= _IN_FLIGHT_MAX:
                        written += _settle(producer, pending)
            written += _settle(producer, pending)
        return Written(written)


class BatchWriter(_Writing, DataSourceArrowWriter):  # type: ignore[misc]
    """`df.write.format("lakelog").mode("append")`."""


class StreamWriter(_Writing, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`df.writeStream.format("lakelog")`. Commit and abort do nothing."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: the records are in the log."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: a log cannot remove single records."""


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    if overwrite:
        raise OptionError('a topic cannot be overwritten: use .mode("append")')
    return BatchWriter(_checked(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    return StreamWriter(_checked(options, schema))


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Raises `OptionError`."""
    given = OptionReader(options, _NAMES)
    acks = given.text("kafka.acks", "all")
    if acks not in ("all", "-1", "1"):
        raise OptionError(f"option 'kafka.acks' must be all, -1 or 1, not {acks!r}")
    return SinkOptions(
        bootstrap=given.required("kafka.bootstrap.servers"),
        topic=given.text("topic") or None,
        compression=given.text("kafka.compression.type", "none"),
        acks=1 if acks == "1" else -1,
        request_bytes_max=given.number("kafka.max.request.size", minimum=1024) or 1 << 20,
        client_id=given.text("kafka.client.id", "lakelog-spark"),
    )


def _checked(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    given = parse_sink_options(options)
    for field in schema:
        accepted = _ACCEPTED.get(field.name)
        if accepted is None:
            known = ", ".join(_ACCEPTED)
            raise OptionError(f"unknown column {field.name!r}; expected columns are {known}")
        if not any(_same_shape(field.dataType, wanted) for wanted in accepted):
            expected = " or ".join(wanted.simpleString() for wanted in accepted)
            raise OptionError(
                f"column {field.name!r} must be {expected}, not {field.dataType.simpleString()}"
            )
    if "value" not in schema.fieldNames():
        raise OptionError("missing column 'value'")
    if given.topic is None and "topic" not in schema.fieldNames():
        raise OptionError("missing topic: set the option 'topic' or add a column 'topic'")
    return given


def _same_shape(given: DataType, wanted: DataType) -> bool:
    """Return whether two types are equal apart from nullability, which expressions change."""
    return bool(given.simpleString() == wanted.simpleString())


def _records(batch: pa.RecordBatch, topic: str | None) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `Producer.send` for each row.

    The option `topic` takes precedence over the column.
    """
    columns = {name: _values(name, batch.column(name)) for name in batch.schema.names}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for row in rows:
        name = topic or row.get("topic")
        if name is None:
            raise OptionError("a row has no topic, and the option 'topic' is not set")
        yield {
            "topic": name,
            "value": row["value"],
            "key": row.get("key"),
            "headers": [(h["key"], h["value"]) for h in row.get("headers") or ()],
            "partition": row.get("partition"),
            "timestamp_ms": row.get("timestamp"),
        }


def _values(name: str, column: pa.Array) -> list[Any]:
    import pyarrow as pa

    if name in ("key", "value"):
        return list(column.cast(pa.binary()).to_pylist())
    if name == "timestamp" and pa.types.is_timestamp(column.type):
        return list(column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64()).to_pylist())
    return list(column.to_pylist())


def _settle(producer: Producer, pending: list[Delivery]) -> int:
    producer.flush()
    for delivery in pending:
        delivery.result()
    count = len(pending)
    pending.clear()
    return count
