"""The result of a record that the producer sends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from lakelog.client.errors import ClientError


class RecordMetadata(NamedTuple):
    """The place of a written record.

    offset: -1 with acks=0, and for a duplicate whose offset the broker does not know. timestamp: as
    stored in the log, in milliseconds since the epoch.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class BatchResult:
    """The result of one batch, shared by the deliveries of its records."""

    __slots__ = (
        "_callbacks",
        "_event",
        "append_time_ms",
        "base_offset",
        "done",
        "error",
        "is_noticed",
        "partition",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.base_offset = -1
        self.append_time_ms = -1
        self.error: ClientError | None = None
        self.done = False
        self.is_noticed = False
        """Whether a caller has got the error."""
        self._event = threading.Event()
        self._callbacks: list[Callable[[], object]] = []

    def succeed(self, base_offset: int, append_time_ms: int) -> None:
        """Settle the batch: its base offset, and the time of its append (ms) or -1."""
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self._finish()

    def fail(self, error: ClientError) -> None:
        """Settle the batch with an error, which `Delivery.result` raises."""
        self.error = error
        self._finish()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the batch is settled; return false after a timeout in seconds."""
        return self._event.wait(timeout_s)

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call `callback` once when the batch is settled, in any thread; at once if it is."""
        self._callbacks.append(callback)
        if self.done:
            self._call_back()

    def _finish(self) -> None:
        self.done = True
        self._event.set()
        self._call_back()

    def _call_back(self) -> None:
        # Both threads may be here at once: each callback is removed by one of them.
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback()


class Delivery:
    """The future result of one record."""

    __slots__ = ("_batch", "_delta", "_timestamp")

    def __init__(self, batch: BatchResult, delta: int, timestamp: int) -> None:
        self._batch = batch
        self._delta = delta
        self._timestamp = timestamp

    @property
    def batches(self) -> list[BatchResult]:
        """The batch of the record."""
        return [self._batch]

    @property
    def done(self) -> bool:
        """Whether `result` returns or raises without waiting."""
        return self._batch.done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait for the broker's response; return the place of the record.

        Raises `NotWrittenError`, `OutcomeUnknownError`, and `TimeoutError` after `timeout_s` (the
        producer still tries to send the record then).
        """
        batch = self._batch
        if not batch.done and not batch.wait(timeout_s):
            raise TimeoutError(f"no response for the record within {timeout_s} s")
        if batch.error is not None:
            batch.is_noticed = True
            raise batch.error
        offset = batch.base_offset + self._delta if batch.base_offset >= 0 else -1
        time = batch.append_time_ms if batch.append_time_ms >= 0 else self._timestamp
        return RecordMetadata(batch.topic, batch.partition, offset, time)


class WrittenRows(NamedTuple):
    """The place of one batch of rows: as many `records` from `offset` on.

    offset: -1 if it is unknown, see `RecordMetadata`.
    """

    topic: str
    partition: int
    offset: int
    records: int


class TableDelivery:
    """The future result of the rows of a table."""

    __slots__ = ("_batches",)

    def __init__(self, batches: list[tuple[BatchResult, int]]) -> None:
        """batches: each with its number of records."""
        self._batches = batches

    @property
    def batches(self) -> list[BatchResult]:
        """The batches of the rows."""
        return [batch for batch, _ in self._batches]

    @property
    def count(self) -> int:
        """The number of rows."""
        return sum(count for _, count in self._batches)

    @property
    def done(self) -> bool:
        """Whether `result` returns or raises without waiting."""
        return all(batch.done for batch, _ in self._batches)

    def result(self, timeout_s: float | None = None) -> list[WrittenRows]:
        """Wait for the brokers' responses; return the places of all rows, batch by batch.

        Raises `NotWrittenError` or `OutcomeUnknownError` for the first batch that failed; the
        others may be written. Raises `TimeoutError` after `timeout_s` seconds; the producer still
        tries to send the rows then.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for batch, _ in self._batches:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not batch.done and not batch.wait(left):
                raise TimeoutError(f"no response for all rows within {timeout_s} s")
        errors = [batch.error for batch, _ in self._batches if batch.error is not None]
        for batch, _ in self._batches:
            batch.is_noticed = True
        if errors:
            raise errors[0]
        return [
            WrittenRows(batch.topic, batch.partition, batch.base_offset, count)
            for batch, count in self._batches
        ]
