"""Parses input (lines, lines with keys, JSON lines), sends its records, and counts the results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.failures import CliError, suggestion
from lakelog.cli.record_text import Header, InputRecord, json_text, parse_json_line, parse_object

if TYPE_CHECKING:
    from lakelog.client.producer import Delivery, Producer

Progress = Callable[[int, int], None]
"""A function that is called with the numbers of bytes and records read so far."""

LINE_BYTES_MAX = 256 << 20
_PROGRESS_EVERY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LineParser:
    """Parses a line (without its line feed) into a record.

    keep_partitions: use the partition in a JSON line, if it has one. Raises `CliError` for options
    that exclude each other.
    """

    input_format: str = "lines"
    key: bytes | None = None
    key_separator: bytes | None = None
    key_field: str | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    keep_partitions: bool = False

    def __post_init__(self) -> None:
        sources = [self.key, self.key_separator, self.key_field]
        if sum(source is not None for source in sources) > 1:
            raise CliError(
                "LL0902", "--key, --key-separator and --key-field are mutually exclusive"
            )
        if self.input_format == "jsonl" and sources != [None, None, None]:
            raise CliError("LL0902", "with --input-format jsonl the key is in the line")
        if self.keep_partitions and self.input_format != "jsonl":
            raise CliError("LL0902", "--keep-partitions requires --input-format jsonl")
        if self.keep_partitions and self.partition is not None:
            raise CliError("LL0902", "--partition and --keep-partitions are mutually exclusive")
        if self.key_separator == b"":
            raise CliError("LL0902", "--key-separator must not be empty")

    def parse(self, line: bytes) -> InputRecord:
        """Return the record of a line. Raises `ValueError` for a line of another format."""
        if self.input_format == "jsonl":
            record = parse_json_line(line)
            partition = record.partition if self.keep_partitions else self.partition
            return record._replace(headers=record.headers + self.headers, partition=partition)
        key, value = self._split(line)
        return InputRecord(key, value, self.headers, self.partition)

    def _split(self, line: bytes) -> tuple[bytes | None, bytes]:
        if self.key_separator is not None:
            key, separator, value = line.partition(self.key_separator)
            return (key, value) if separator else (None, line)
        if self.key_field is not None:
            return _field(line, self.key_field), line
        return self.key, line


def _field(line: bytes, name: str) -> bytes | None:
    fields = parse_object(line)
    if name not in fields:
        hint = suggestion(name, fields) or "null stands for a record without a key"
        raise ValueError(f"field '{name}' for the key is missing; {hint}")
    value = fields[name]
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json_text(value)


def read_records(
    stream: IO[bytes], parser: LineParser, progress: Progress = lambda size, records: None
) -> Iterator[InputRecord]:
    """Yield the records of a stream. Raises `CliError` LL0605 for the first invalid line."""
    size = number = 0
    while line := stream.readline(LINE_BYTES_MAX):
        number += 1
        size += len(line)
        if len(line) == LINE_BYTES_MAX:
            raise CliError("LL0605", f"line {number} is longer than {LINE_BYTES_MAX} bytes")
        try:
            yield parser.parse(line.removesuffix(b"\n"))
        except ValueError as error:
            raise CliError("LL0605", f"line {number}: {error}") from error
        if number % _PROGRESS_EVERY == 0:
            progress(size, number)
    progress(size, number)


_HEADER_OVERHEAD = 10


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


def send_all(producer: Producer, topic: str, records: Iterable[InputRecord]) -> Report:
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
                delivery = producer.send(topic, record.value, record.key, *record[2:])
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
