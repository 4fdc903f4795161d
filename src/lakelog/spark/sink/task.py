"""Writes the rows of one task, and names the option or column for errors of the producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import ClientError, NotWrittenError, TopicNotFoundError
from lakelog.client.producer.api import Producer
from lakelog.spark.python_processes import exempt_modules
from lakelog.spark.sink.columns import record_columns
from lakelog.spark.sink.options import FencedError, RowError, SinkError, SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

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
