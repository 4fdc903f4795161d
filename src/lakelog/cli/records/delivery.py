"""Sends records and counts their results."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.failures import CliError
from lakelog.cli.records.record_text import Header, InputRecord

_HEADER_OVERHEAD = 10


class Metadata(Protocol):
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


class Delivery(Protocol):
    @property
    def done(self) -> bool: ...
    def result(self) -> Metadata: ...


class RecordSink(Protocol):
    """The part of `Producer` that this module uses."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery: ...


@dataclass(slots=True)
class WrittenRecords:
    """The records written to one partition. Offsets are -1 with acks=0."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1


@dataclass(slots=True)
class Report:
    """The results of a run.

    bytes: the size of all written keys and values. timed_out: a record was not acknowledged in
    time. gave_up: the rest of the input was not read for that reason. bad_input: the error in the
    input that ended the run, if any.
    """

    records: int = 0
    bytes: int = 0
    failed: int = 0
    first_error: KafkaError | None = None
    largest_failed: int = 0
    """The size of the largest record that failed like the first one, with headers."""
    timed_out: bool = False
    gave_up: bool = False
    bad_input: CliError | None = None
    partitions: dict[int, WrittenRecords] = field(default_factory=dict)

    def add(self, delivery: Delivery, size: int, headers_size: int) -> None:
        """Wait for a delivery and count it; sizes are in bytes.

        Raises nothing for a record that was not written: it counts as failed.
        """
        try:
            metadata = delivery.result()
        except KafkaError as error:
            self.fail(error, size + headers_size)
            return
        self.records += 1
        self.bytes += size
        written = self.partitions.setdefault(metadata.partition, WrittenRecords())
        if not written.records:
            written.first_offset = metadata.offset
        written.records += 1
        written.last_offset = max(written.last_offset, metadata.offset)

    def fail(self, error: KafkaError, size: int) -> None:
        self.failed += 1
        self.timed_out |= error.code is ErrorCode.REQUEST_TIMED_OUT
        if self.first_error is None:
            self.first_error = error
        if error.code is self.first_error.code:
            self.largest_failed = max(self.largest_failed, size)


def send_all(sink: RecordSink, topic: str, records: Iterable[InputRecord]) -> Report:
    """Send all records and wait for all responses; return the results.

    The failure of a record does not stop the run, with two exceptions. If the first record fails
    for another reason than its size, all others would fail too. After a time-out, each further
    record would time out too, so no more records are read. Records before bad input (a `CliError`
    from `records`) are sent and counted. Any other error is raised after the records before it;
    `KeyboardInterrupt` is raised at once.
    """
    report = Report()
    waiting: deque[tuple[Delivery, int, int]] = deque()
    try:
        for record in records:
            if report.timed_out:
                report.gave_up = True
                break
            size = len(record.key or b"") + len(record.value or b"")
            headers_size = _headers_size(record.headers) if record.headers else 0
            try:
                delivery = sink.send(topic, record.value, record.key, *record[2:])
            except KafkaError as error:
                report.fail(error, size + headers_size)
                is_its_own_fault = error.code is ErrorCode.MESSAGE_TOO_LARGE
                if not (is_its_own_fault or waiting or report.records):
                    raise
                continue
            waiting.append((delivery, size, headers_size))
            while waiting and waiting[0][0].done:
                report.add(*waiting.popleft())
    except CliError as error:
        report.bad_input = error
    except KeyboardInterrupt:
        waiting.clear()
        raise
    finally:
        while waiting:
            report.add(*waiting.popleft())
    return report


def _headers_size(headers: Iterable[Header]) -> int:
    return sum(len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD for name, value in headers)
