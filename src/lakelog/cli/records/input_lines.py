"""Parses input into records: lines, lines with keys, JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from lakelog.cli.failures import CliError, suggestion
from lakelog.cli.records.json_records import json_text, parse_json_line, parse_object
from lakelog.cli.records.record_text import Header, InputRecord

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
