"""Records before the producer buffers them: types, partitions, and the rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

from lakelog.base.errors import ErrorCode
from lakelog.base.murmur2 import partition_for_key
from lakelog.client.errors import NotWrittenError
from lakelog.columns.encoding.columns import BadRowError
from lakelog.columns.encoding.encode import RowEncoder, TopicRows, as_table, split_topics
from lakelog.columns.encoding.rows import EncodedBatch
from lakelog.records.compression import Codec


def check_types(
    topic: object,
    value: object,
    key: object = None,
    headers: object = (),
    partition: object = None,
    timestamp_ms: object = None,
) -> None:
    """Raise `TypeError` with the expected type, if a part has another one."""
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, such as 'orders', not {_named(topic)}")
    _check_bytes("value", value)
    _check_bytes("key", key)
    if not isinstance(headers, Iterable):
        raise _wrong_header(headers)
    for header in headers:
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise _wrong_header(header)
        if not isinstance(header[0], str):
            raise TypeError(f"the name of a header must be str, not {_named(header[0])}")
        _check_bytes(f"header {header[0]!r}", header[1])
    for what, number in (("partition", partition), ("timestamp_ms", timestamp_ms)):
        if number is not None and not isinstance(number, SupportsIndex):
            raise TypeError(f"{what} must be int or None, not {_named(number)}")


def _check_bytes(what: str, part: object) -> None:
    if isinstance(part, str):
        raise TypeError(f"{what} must be bytes or None, not str: use {_shown(part)}.encode()")
    if part is not None and not isinstance(part, bytes | bytearray | memoryview):
        raise TypeError(f"{what} must be bytes or None, not {_named(part)}")


def _wrong_header(given: object) -> TypeError:
    return TypeError(
        f"headers must be pairs of a name and a value, such as [('name', b'value')], not {given!r}"
    )


def _named(part: object) -> str:
    return type(part).__name__


def _shown(text: str) -> str:
    """Return a short text as Python writes it, a long one by its beginning."""
    return repr(text if len(text) <= 20 else f"{text[:20]}...")


Partitioner = Callable[[str, bytes, int], int]
"""A function of topic, key and number of partitions that returns a partition."""


def by_key(topic: str, key: bytes, count: int) -> int:
    """Return the partition that Java's producer chooses for the key (murmur2)."""
    return partition_for_key(key, count)


class Sticky:
    """Chooses one partition for records without a key until its batch is full (KIP-480)."""

    __slots__ = ("_current",)

    def __init__(self, start: int) -> None:
        self._current = start

    def current(self, count: int) -> int:
        """Return the chosen partition; `count` is the number of partitions."""
        return self._current % count

    def set(self, partition: int) -> None:
        """Choose this partition."""
        self._current = partition

    def move_on(self, partition: int, count: int) -> None:
        """Choose the next partition, because a batch of `partition` is full."""
        if self.current(count) == partition:
            self._current = (partition + 1) % count


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
