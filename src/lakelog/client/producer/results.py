"""The result of a record that the producer sends, and the meaning of an error for its batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import ClientError


class Verdict(Enum):
    """The next step after the result of a batch."""

    DONE = auto()
    RETRY = auto()
    """Retry with the same sequence."""
    RENUMBER = auto()
    """The batch is not in the log, and the broker will never accept its sequence: retry at the next
    epoch."""
    FAIL = auto()
    FATAL = auto()
    """The broker accepts no further batch of this producer."""


_MAYBE_WRITTEN = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_SEQUENCE_LOST = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


def maybe_written(code: ErrorCode) -> bool:
    """Return whether the batch may be in the log despite this error."""
    return code in _MAYBE_WRITTEN


def judge(code: ErrorCode, *, is_first: bool) -> Verdict:
    """Return the verdict. is_first: the partition has no earlier unresolved batch.

    A sequence that is out of order after an unresolved batch only shows that the earlier batch
    failed. If the batch is the first, the broker has lost or never got the batches before it, and
    the batch itself is not among the last five that the broker remembers: it is not written
    (KIP-360).
    """
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Verdict.DONE
    if code in _SEQUENCE_LOST:
        return Verdict.RENUMBER if is_first else Verdict.RETRY
    if code in _FENCED:
        return Verdict.FATAL
    return Verdict.RETRY if code.retriable else Verdict.FAIL


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
        """Complete the batch: its base offset, and the time of its append (ms) or -1."""
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self._finish()

    def fail(self, error: ClientError) -> None:
        """Complete the batch with an error, which `Delivery.result` raises."""
        self.error = error
        self._finish()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the batch is complete; return false after a timeout in seconds."""
        return self._event.wait(timeout_s)

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call `callback` once when the batch is complete, in any thread; at once if it is."""
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
