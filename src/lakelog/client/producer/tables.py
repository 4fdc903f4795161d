"""Rows of a table as the batches of a producer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import NotWrittenError
from lakelog.client.producer.partitioner import Partitioner, Sticky, by_key
from lakelog.columns.encoding.columns import BadRowError
from lakelog.columns.encoding.encode import RowEncoder
from lakelog.columns.encoding.rows import EncodedBatch
from lakelog.columns.encoding.topics import TopicRows, as_table, split_topics
from lakelog.records.compression import Codec

LARGER = "Raise max_request_bytes of the producer, and max.message.bytes of the topic with it."
"""The advice for a record over the limit."""


class TableWriter:
    """Encodes tables for one producer. Sizes are in bytes."""

    def __init__(
        self,
        codec: Codec,
        partitioner: Partitioner,
        *,
        batch_bytes: int,
        record_bytes_max: int,
    ) -> None:
        self._codec = codec
        self._partitioner = partitioner
        self._batch_bytes = batch_bytes
        self._record_bytes_max = record_bytes_max

    def split(self, rows: Any, topic: str | None) -> list[TopicRows]:
        """Return the rows of each topic; `topic` is that of all rows, instead of a column.

        Raises `ColumnError`, `NotWrittenError` for a row without a topic, and the errors of
        `as_table`.
        """
        try:
            return list(split_topics(as_table(rows), topic))
        except BadRowError as error:
            raise _not_written(error) from None

    def check(self, rows: TopicRows, partitions: int) -> None:
        """Choose partitions with the producer's own partitioner, and check all rows.

        Raises `ColumnError`, and `NotWrittenError` for the first row that cannot be a record.
        """
        if self._partitioner is not by_key:
            rows.choose_partitions(lambda key: self._partitioner(rows.topic, key, partitions))
        try:
            with rows.original_rows():
                self._encoder(partitions, 0).check(rows.batches)
        except BadRowError as error:
            raise _not_written(error) from None

    def encode(
        self,
        rows: TopicRows,
        partitions: int,
        sticky: Sticky,
        now_ms: int,
        add: Callable[[EncodedBatch], None],
    ) -> None:
        """Call `add` with each batch of checked rows. Raises the errors of `add`."""
        encoder = self._encoder(partitions, sticky.current(partitions))
        for batch in encoder.encode(rows.batches, now_ms):
            add(batch)
        sticky.set(encoder.sticky)

    def _encoder(self, partitions: int, sticky: int) -> RowEncoder:
        return RowEncoder(
            partitions,
            codec=self._codec,
            batch_bytes=self._batch_bytes,
            record_bytes_max=self._record_bytes_max,
            sticky=sticky,
        )


def _not_written(error: BadRowError) -> NotWrittenError:
    hint = LARGER if error.code is ErrorCode.MESSAGE_TOO_LARGE else ""
    return NotWrittenError(error.code, str(error), hint=hint)
