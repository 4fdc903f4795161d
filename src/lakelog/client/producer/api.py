"""The producer: sends records, in order per partition, without duplicates or gaps.

```python
with Producer("localhost:9092", compression="zstd") as producer:
    producer.send("orders", b"first", key=b"eu")
    where = producer.send("orders", b"second").result()
```
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from lakelog.base.closeable import Closeable
from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.errors import NotWrittenError, OutcomeUnknownError, PartitionNotFoundError
from lakelog.client.producer.accumulator import Accumulator, Settings
from lakelog.client.producer.batch import OpenBatch, PartitionQueue
from lakelog.client.producer.records import (
    LARGER,
    Partitioner,
    Sticky,
    TableWriter,
    by_key,
    check_types,
)
from lakelog.client.producer.results import BatchResult, Delivery, TableDelivery
from lakelog.client.producer.sender import Sender
from lakelog.client.view import ClusterView
from lakelog.columns.encoding.rows import EncodedBatch
from lakelog.records.builder import HeaderItems
from lakelog.records.compression import Codec
from lakelog.runtime.api import Buffer

ACKS_ALL = -1
_OVERHEAD_BYTES = 128
_RECORD_OVERHEAD = 32
"""An upper bound of the lengths, attributes and deltas of a record, in bytes."""
_HEADER_OVERHEAD = 10
_CHUNK = 4096
_SEQUENCED_IN_FLIGHT_MAX = 5
_NO_TIMESTAMP = -1
_TIMESTAMP_MAX = (1 << 63) - 2  # a batch stores timestamps as 64-bit deltas, even -1


class _Topic:
    """The state of a topic that `send` needs."""

    __slots__ = ("name", "queues", "sticky")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.sticky = Sticky(random.randrange(1 << 16))


class Producer(Closeable):
    """Sends records from any thread. A thread of the producer sends requests to the brokers.

    acks: -1 waits for all in-sync replicas, 1 for the leader, 0 for no response (offsets are
    unknown).
    idempotent: retries cannot duplicate or reorder records; by default if acks is -1.
    compression: none, gzip, snappy, lz4 or zstd.
    linger_ms: how long an open batch waits for more records before it is sent.
    batch_bytes: the maximum size of a batch before compression; a larger record gets a batch of its
    own.
    max_in_flight: requests in flight per broker; at most 5 with idempotence.
    request_timeout_ms: limit of one request. delivery_timeout_ms: limit of a record with its
    retries.
    buffer_bytes: limit of unanswered batches; when it is reached, `send` blocks for up to
    max_block_ms.
    partitioner: for records with a key and no partition; by default murmur2 as in Java. Records
    without a key fill the batch of one partition, then that of the next.
    auto_create: let the broker create topics that do not exist, if it is configured to.

    Raises `ValueError` for contradictory settings, and `AddressError`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        acks: int = ACKS_ALL,
        compression: str = "none",
        linger_ms: int = 5,
        batch_bytes: int = 128 << 10,
        idempotent: bool | None = None,
        max_in_flight: int = 5,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        buffer_bytes: int = 64 << 20,
        max_request_bytes: int = 1 << 20,
        max_block_ms: int = 60_000,
        partitioner: Partitioner = by_key,
        auto_create: bool = True,
        client_id: str = "lakelog",
        transactional_id: str | None = None,
    ) -> None:
        is_idempotent = acks == ACKS_ALL if idempotent is None else idempotent
        _validate(acks, is_idempotent, max_in_flight)
        self._mutex = threading.Lock()
        self._lock = threading.Condition(self._mutex)
        self._topic_lock = threading.Lock()
        self._topics: dict[str, _Topic] = {}
        self._partitioner = partitioner
        self._buffer_bytes = buffer_bytes
        self._batch_bytes = min(batch_bytes, max_request_bytes)
        self._full_bytes = self._batch_bytes - _RECORD_OVERHEAD
        self._max_record_bytes = max_request_bytes - _OVERHEAD_BYTES
        self._max_block_s = max_block_ms / 1000
        self._flushing = 0
        self._is_closed = self._is_refusing = False
        codec = _codec(compression)
        self._tables = TableWriter(
            codec,
            partitioner,
            batch_bytes=self._batch_bytes,
            record_bytes_max=self._max_record_bytes,
        )
        settings = Settings(
            codec=codec,
            linger_s=linger_ms / 1000,
            delivery_timeout_s=delivery_timeout_ms / 1000,
            max_in_flight=max_in_flight,
            is_idempotent=is_idempotent,
            is_transactional=transactional_id is not None,
            acks=acks,
            max_request_bytes=max_request_bytes,
            request_timeout_s=request_timeout_ms / 1000,
            transactional_id=transactional_id,
        )
        self._accumulator = Accumulator(settings)
        new_cluster = partial(
            Cluster,
            bootstrap,
            client_id=client_id,
            timeout_s=self._max_block_s,
            request_timeout_s=request_timeout_ms / 1000,
            allow_auto_create=auto_create,
        )
        self._cluster = new_cluster()
        self._sender = Sender(
            new_cluster(),
            self._accumulator,
            self._lock,
            settings,
            on_view=self._grow_topics,
            on_end=self._refuse,
        )
        self._sender.start()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: HeaderItems = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Buffer a record and return at once; `Delivery.result` waits for the broker.

        The first record of a topic waits for the topic's metadata. timestamp_ms: milliseconds since
        the epoch, by default now; -1 for none. Raises `NotWrittenError` if the record cannot be
        buffered, `TopicNotFoundError`, `PartitionNotFoundError`, and `TypeError` for a part of
        another type, such as text.
        """
        try:
            state = self._topics.get(topic) or self._learn_topic(topic)
            timestamp_ms = _time_ms(timestamp_ms)
            size = (len(value) if value else 0) + (len(key) if key else 0)
            if headers:
                headers = tuple(headers)
                size += _headers_size(headers)
            if size > self._max_record_bytes:
                raise self._too_large(size)
            with self._mutex:
                if self._is_refusing or self._accumulator.buffered_bytes >= self._buffer_bytes:
                    self._wait_for_space()
                queue = self._queue(state, key, partition)
                batch = queue.open
                while batch is not None and batch.builder.size_estimate + size > self._full_bytes:
                    self._close_batch(state, queue)
                    queue = self._queue(state, key, partition)
                    batch = queue.open
                if batch is None:
                    batch = self._open(queue)
                builder = batch.builder
                try:
                    delta = builder.append(timestamp_ms, key, value, headers)
                except BaseException:
                    self._accumulator.drop_empty(queue)
                    raise
                if builder.size_estimate >= self._batch_bytes:
                    self._close_batch(state, queue)
            return Delivery(batch.result, delta, timestamp_ms)
        except (AttributeError, TypeError, ValueError):
            check_types(topic, value, key, headers, partition, timestamp_ms)
            raise

    def send_values(
        self,
        topic: str,
        values: Sequence[bytes],
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Buffer many records that only have a value, several times faster than `send`.

        They go in order to `partition`, or to one partition after the other. `flush` raises their
        failures. Raises the errors of `send`; records before the failed one stay buffered.
        timestamp_ms: milliseconds since the epoch, by default now.
        """
        try:
            state = self._topics.get(topic) or self._learn_topic(topic)
            time_ms = _time_ms(timestamp_ms)
            if (largest := max(map(len, values), default=0)) > self._max_record_bytes:
                raise self._too_large(largest)
            start = 0
            while start < len(values):
                with self._mutex:
                    if self._is_refusing or self._accumulator.buffered_bytes >= self._buffer_bytes:
                        self._wait_for_space()
                    queue = self._queue(state, None, partition)
                    batch = queue.open
                    if batch is not None:
                        size = batch.builder.size_estimate + len(values[start])
                        if size > self._full_bytes:
                            self._close_batch(state, queue)
                            continue
                    builder = (batch or self._open(queue)).builder
                    chunk = values[start : start + _CHUNK]
                    try:
                        start += builder.extend(time_ms, chunk, self._batch_bytes)
                    except BaseException:
                        self._accumulator.drop_empty(queue)
                        raise
                    if builder.size_estimate >= self._batch_bytes:
                        self._close_batch(state, queue)
        except (AttributeError, TypeError, ValueError):
            for value in values or (b"",):
                check_types(topic, value, partition=partition, timestamp_ms=timestamp_ms)
            raise

    def send_table(self, rows: Any, topic: str | None = None) -> TableDelivery:
        """Buffer the rows of a table as records, and return before they are acknowledged.

        rows: a `pyarrow.Table` or `RecordBatch`, or a DataFrame of pandas or polars. Its columns
        are `value` and optionally `key`, `headers`, `timestamp`, `partition` and `topic`, see
        `lakelog.columns.encoding.encode.RowEncoder`. topic: the topic of all rows, instead of a
        column. The rows of a partition keep their order.

        All rows are checked first. Raises `NotWrittenError` for a row that cannot be a record, and
        `ColumnError` for a wrong column; no row is buffered then. Also raises the errors of `send`;
        rows before the failure stay buffered. `MissingPackageError` names the extra to install.
        """
        now_ms = time.time_ns() // 1_000_000
        results: list[tuple[BatchResult, int]] = []
        parts = [
            (part, self._topics.get(part.topic) or self._learn_topic(part.topic))
            for part in self._tables.split(rows, topic)
        ]
        for part, state in parts:
            self._tables.check(part, len(state.queues))
        for part, state in parts:

            def add(batch: EncodedBatch, state: _Topic = state) -> None:
                results.append((self._add(state, batch), batch.count))

            self._tables.encode(part, len(state.queues), state.sticky, now_ms, add)
        return TableDelivery(results)

    def flush(self, timeout_s: float | None = None) -> None:
        """Send all buffered records and wait until the brokers have answered.

        Raises the first failure since the last flush that no `Delivery.result` has raised, and
        `TimeoutError` after `timeout_s`. timeout_s: seconds; `None` waits without a limit.
        """
        with self._lock:
            self._flushing += 1
            self._accumulator.is_flushing = True
            if self._sender.is_sleeping:
                self._sender.wake()
            try:
                if not self._lock.wait_for(lambda: self._accumulator.is_idle, timeout_s):
                    raise TimeoutError(f"records are still unanswered after {timeout_s} s")
            finally:
                self._flushing -= 1
                self._accumulator.is_flushing = self._flushing > 0
            failure = self._accumulator.take_failure()
        if failure is not None:
            raise failure

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end the thread and the connections. May be called repeatedly.

        timeout_s: limit of the flush, and of the wait for the thread, in seconds. Raises the errors
        of `flush`; the producer is closed all the same.
        """
        if self._is_closed:
            return
        try:
            self.flush(timeout_s)
        finally:
            self._is_closed = self._is_refusing = True
            self._sender.stop(timeout_s)
            self._cluster.close()

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises `TopicNotFoundError`.

        Raises `ClientError` if no broker answers.
        """
        return len((self._topics.get(topic) or self._learn_topic(topic)).queues)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close(timeout_s=5.0)
        except (NotWrittenError, OutcomeUnknownError, TimeoutError) as failure:
            error.add_note(f"closing the producer: {failure}")

    def _too_large(self, size: int) -> NotWrittenError:
        text = f"a record of {size} bytes exceeds max_request_bytes ({self._max_record_bytes})"
        return NotWrittenError(ErrorCode.MESSAGE_TOO_LARGE, text, hint=LARGER)

    def _refuse(self) -> None:
        """Reject all further records. The caller holds the lock."""
        self._is_refusing = True

    def _open(self, queue: PartitionQueue) -> OpenBatch:
        if self._sender.is_sleeping:
            self._sender.wake()
        return self._accumulator.open(queue, time.monotonic())

    def _add(self, state: _Topic, batch: EncodedBatch) -> BatchResult:
        with self._mutex:
            if self._is_refusing or self._accumulator.buffered_bytes >= self._buffer_bytes:
                self._wait_for_space()
            queue = state.queues[batch.partition]
            added = self._accumulator.add(queue, batch, time.monotonic())
            if self._sender.is_sleeping:
                self._sender.wake()
        return added.result

    def _close_batch(self, state: _Topic, queue: PartitionQueue) -> None:
        self._accumulator.close(queue)
        state.sticky.move_on(queue.partition, len(state.queues))
        if self._sender.is_sleeping:
            self._sender.wake()

    def _queue(self, state: _Topic, key: bytes | None, partition: int | None) -> PartitionQueue:
        queues = state.queues
        if partition is None:
            if key is None:
                partition = state.sticky.current(len(queues))
            else:
                partition = self._partitioner(state.name, key, len(queues))
        if not 0 <= partition < len(queues):
            raise PartitionNotFoundError(state.name, partition, len(queues))
        return queues[partition]

    def _wait_for_space(self) -> None:
        """Wait until the buffer has capacity.

        Raises `NotWrittenError` after max_block_ms, and if the producer is closed or has failed.
        """

        def is_decided() -> bool:
            has_capacity = self._accumulator.buffered_bytes < self._buffer_bytes
            return has_capacity or self._is_refusing

        in_time = self._lock.wait_for(is_decided, self._max_block_s)
        if self._is_refusing:
            reason = self._sender.fatal or "the producer is closed"
            raise NotWrittenError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
        if not in_time:
            text = f"the buffer stayed full for {self._max_block_s:g} s"
            raise NotWrittenError(ErrorCode.REQUEST_TIMED_OUT, text)

    def _learn_topic(self, name: str) -> _Topic:
        with self._topic_lock:
            # Another thread may have learned the topic while this one waited for the lock.
            if name not in self._topics:
                topic = self._cluster.topic(name)
                state = _Topic(name)
                with self._lock:
                    self._set_count(state, len(topic.partitions))
                self._topics[name] = state
            return self._topics[name]

    def _grow_topics(self, view: ClusterView) -> None:
        """Add the partitions that topics have gained."""
        with self._lock:
            for name, topic in view.topics.items():
                state = self._topics.get(name)
                if state is not None:
                    self._set_count(state, len(topic.partitions))

    def _set_count(self, state: _Topic, count: int) -> None:
        queues: Iterable[int] = range(len(state.queues), count)
        state.queues += [self._accumulator.queue(state.name, partition) for partition in queues]


def _headers_size(headers: Iterable[tuple[str, Buffer | None]]) -> int:
    """Return an upper bound: a character of a name takes up to four bytes."""
    return sum(4 * len(name) + len(value or b"") + _HEADER_OVERHEAD for name, value in headers)


def _time_ms(timestamp_ms: int | None) -> int:
    """Return the timestamp, by default the present time. Raises `NotWrittenError`."""
    if timestamp_ms is None:
        return time.time_ns() // 1_000_000
    if not _NO_TIMESTAMP <= timestamp_ms <= _TIMESTAMP_MAX:
        text = f"timestamp {timestamp_ms} is negative or has more than 63 bits"
        raise NotWrittenError(ErrorCode.INVALID_TIMESTAMP, text)
    return timestamp_ms


def _codec(compression: str) -> Codec:
    try:
        return Codec[compression.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Codec)
        raise ValueError(f"unknown compression {compression!r}; expected one of {names}") from None


def _validate(acks: int, is_idempotent: bool, max_in_flight: int) -> None:
    if acks not in (ACKS_ALL, 0, 1):
        raise ValueError(f"acks must be -1, 0 or 1, not {acks}")
    if is_idempotent and acks != ACKS_ALL:
        raise ValueError("idempotence requires acks=-1")
    if max_in_flight < 1 or (is_idempotent and max_in_flight > _SEQUENCED_IN_FLIGHT_MAX):
        raise ValueError("max_in_flight must be 1 to 5 with idempotence, and at least 1 without")
