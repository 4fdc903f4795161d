"""The lines of the demo's log, and the report about them.

Only `\n` ends a line, and lines are not normalized: a record's value is the exact bytes of its
line, also `\r`, NUL or invalid UTF-8. A last line without `\n` counts as a line.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from lakelog.spark.archive.sync import SyncResult


_POLL_S = 10.0
_Rows = Iterable[tuple[int, int, bytes | None]]
"""Partition, offset, value; in order of offsets within a partition."""


class ProofError(Exception):
    """A reader found a missing or repeated offset. The text has its place."""


@dataclass(slots=True)
class Tally:
    """The number of a partition's records, and a digest of their values in order."""

    count: int = 0
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, value: bytes | None) -> None:
        self.count += 1
        self._hash.update(b"-" if value is None else b"%d:" % len(value))
        self._hash.update(value or b"")

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one reader for a topic, by partition."""

    archived: Mapping[int, int]
    live: Mapping[int, int]
    digests: Mapping[int, str]


def count_with_lakelog(bootstrap: str, topic: str, archive: SyncResult) -> Found:
    """Return the counts of PyArrow and lakelog's client. Raises `ProofError`."""
    return _counted(_pyarrow_rows(archive), _lakelog_rows(bootstrap, topic, archive.ends))


def count_with_others(bootstrap: str, topic: str, archive: SyncResult) -> Found:
    """Return the counts of DuckDB and librdkafka. Raises `ProofError`."""
    return _counted(_duckdb_rows(archive), _librdkafka_rows(bootstrap, topic, archive.ends))


def _counted(archived: _Rows, live: _Rows) -> Found:
    tallies: dict[int, Tally] = {}
    counts: list[dict[int, int]] = []
    for rows in (archived, live):
        counts.append({})
        for partition, offset, value in rows:
            tally = tallies.setdefault(partition, Tally())
            if offset != tally.count:
                raise ProofError(f"partition {partition}: offset {offset} instead of {tally.count}")
            tally.add(value)
            counts[-1][partition] = counts[-1].get(partition, 0) + 1
    digests = {partition: tally.digest for partition, tally in tallies.items()}
    return Found(counts[0], counts[1], digests)


def _data_files(archive: SyncResult) -> list[str]:
    """Return the local paths of the files in the archive's last snapshot."""
    from pyiceberg.table import StaticTable

    tasks = StaticTable.from_metadata(archive.metadata_path).scan().plan_files()
    return sorted(task.file.file_path.removeprefix("file://") for task in tasks)


def _pyarrow_rows(archive: SyncResult) -> Iterator[tuple[int, int, bytes | None]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = ["partition", "offset", "value"]
    tables = [pq.read_table(path, columns=columns) for path in _data_files(archive)]
    if tables:
        ordered = pa.concat_tables(tables).sort_by(
            [("partition", "ascending"), ("offset", "ascending")]
        )
        for batch in ordered.to_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _duckdb_rows(archive: SyncResult) -> Iterator[tuple[int, int, bytes | None]]:
    import duckdb

    files = _data_files(archive)
    if files:
        with duckdb.connect() as connection:
            rows = connection.execute(
                'SELECT partition, "offset", value FROM read_parquet(?) ORDER BY ALL', [files]
            )
            while some := rows.fetchmany(10_000):
                yield from some


def _lakelog_rows(
    bootstrap: str, topic: str, ends: Mapping[int, int]
) -> Iterator[tuple[int, int, bytes | None]]:
    from lakelog.columns.decoding.decode import decode_columns
    from lakelog.tables.topic.client import TopicClient
    from lakelog.tables.topic.offsets import OffsetRange

    with TopicClient(bootstrap, client_id="lakelog-demo") as client:
        partitions = [(topic, p) for p in client.describe([topic])[topic].partitions]
        for (_, partition), end in client.latest(partitions).items():
            offset_range = OffsetRange(topic, partition, ends.get(partition, 0), end)
            batches = client.batches(offset_range)
            for rows in decode_columns(
                batches, ["offset", "value"], start=offset_range.start, end=end
            ):
                for offset, value in zip(
                    *(rows.column(i).to_pylist() for i in (0, 1)), strict=True
                ):
                    yield partition, offset, value


def _librdkafka_rows(
    bootstrap: str, topic: str, ends: Mapping[int, int]
) -> Iterator[tuple[int, int, bytes | None]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False}
    )
    try:
        for partition in consumer.list_topics(topic).topics[topic].partitions:
            position = TopicPartition(topic, partition, ends.get(partition, 0))
            _, end = consumer.get_watermark_offsets(position)
            consumer.assign([position])
            for offset in range(position.offset, end):
                message = consumer.poll(_POLL_S)
                if message is None or message.error():
                    raise ProofError(f"no record of {topic}-{partition} at offset {offset}")
                yield partition, message.offset() or 0, message.value()
    finally:
        consumer.close()


_BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Requests:
    """Statistics of the second topic.

    errors: requests with a status of 400 or more. repeated: lines that occurred before.
    """

    parsed: int
    malformed: int
    repeated: int
    top_paths: Sequence[tuple[str, int]]
    errors_by_hour: Mapping[datetime, int]


@dataclass(frozen=True, slots=True)
class Ledger:
    """One topic: the produced records of each partition, and the results of the two readers."""

    topic: str
    produced: Mapping[int, int]
    digests: Mapping[int, str]
    readers: Mapping[str, Found]

    def holds(self, partition: int) -> bool:
        """Whether every reader found the produced records, in number, content and order."""
        return all(
            self.total(reader, partition) == self.produced[partition]
            and reader.digests.get(partition, "") == self.digests.get(partition, "")
            for reader in self.readers.values()
        )

    @staticmethod
    def total(reader: Found, partition: int) -> int:
        return reader.archived.get(partition, 0) + reader.live.get(partition, 0)


def print_requests(console: Console, requests: Requests) -> None:
    console.print()
    malformed = _plural("malformed line", requests.malformed)
    repeated = _plural("repeated line", requests.repeated)
    console.print(
        f"[bold]{requests.parsed:,}[/] requests parsed, "
        f"[bold]{requests.malformed:,}[/] {malformed} kept raw, "
        f"[bold]{requests.repeated:,}[/] {repeated} kept"
    )
    paths = Table(title="Top paths", title_justify="left", title_style="bold")
    paths.add_column("requests", justify="right")
    paths.add_column("path", overflow="ellipsis", no_wrap=True, max_width=76)
    for path, count in requests.top_paths:
        paths.add_row(f"{count:,}", Text(path))
    console.print(paths)
    _print_errors(console, requests.errors_by_hour)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _print_errors(console: Console, errors: Mapping[datetime, int]) -> None:
    table = Table(title="Errors per hour (status 400 and up)", title_justify="left")
    table.title_style = "bold"
    table.add_column("day (UTC)")
    table.add_column("hour 0 … 23")
    table.add_column("most in an hour", justify="right")
    table.add_column("errors", justify="right")
    most = max(errors.values(), default=1)
    for day in sorted({hour.date() for hour in errors}):
        counts = [0] * 24
        for hour, count in errors.items():
            if hour.date() == day:
                counts[hour.hour] = count
        bars = "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] for count in counts)
        table.add_row(str(day), bars, f"{max(counts):,}", f"{sum(counts):,}")
    console.print(table)


def print_ledgers(console: Console, ledgers: Sequence[Ledger]) -> None:
    table = Table(title="Archived + live = produced", title_justify="left", title_style="bold")
    table.add_column("topic")
    table.add_column("partition", justify="right")
    for name in ledgers[0].readers:
        table.add_column(name, justify="right")
    table.add_column("produced", justify="right")
    table.add_column("same bytes, same order")
    for ledger in ledgers:
        for partition in sorted(ledger.produced):
            table.add_row(ledger.topic, str(partition), *_cells(ledger, partition))
        table.add_section()
    console.print(table)


def _cells(ledger: Ledger, partition: int) -> list[str]:
    sums = [
        f"{reader.archived.get(partition, 0):,} + {reader.live.get(partition, 0):,}"
        for reader in ledger.readers.values()
    ]
    verdict = "[green]yes[/]" if ledger.holds(partition) else "[bold red]NO[/]"
    return [*sums, f"{ledger.produced[partition]:,}", verdict]


_KEY_BYTES_MAX = 255
_SEED = 20150517
_PATHS = (
    "/", "/favicon.ico", "/style.css", "/images/logo.png", "/about", "/blog/commit-logs",
    "/blog/arrow-batches", "/blog/offsets", "/projects/lakelog", "/downloads/lakelog.tar.gz",
    "/search?q=iceberg", "/login", "/robots.txt", "/missing",
)  # fmt: skip
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:124.0) Gecko/20100101 Firefox/124.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15",
    "curl/8.5.0",
    "feedfetcher/2.1 (+http://example.org/bot.html)",
)
_MALFORMED = (b"", b"GET / HTTP/1.0", b'198.51.100.7 - - [bad time] "GET / HTTP/1.1" 200 1 "-" "x"')


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    for line in file:
        yield line.removesuffix(b"\n")


def split_lines(file: BinaryIO, first_bytes: float) -> tuple[Iterator[bytes], Iterator[bytes]]:
    """Return the lines in two parts, to be read in order; the first has about `first_bytes`.

    Raises `OSError`.
    """
    lines = read_lines(file)

    def until_limit() -> Iterator[bytes]:
        taken = 0
        while taken < first_bytes and (line := next(lines, None)) is not None:
            taken += len(line) + 1
            yield line

    return until_limit(), lines


def client_address(line: bytes) -> bytes | None:
    """Return the first word of a line as the key; `None` if it is missing or too long."""
    word, space, _ = line.partition(b" ")
    return word if space and 0 < len(word) <= _KEY_BYTES_MAX else None


def write_generated_log(path: Path, lines: int = 10_000) -> None:
    """Write a plausible access log of three days.

    Clients and paths are distributed unevenly; there are errors and a few malformed lines. The log
    is always the same. Raises `OSError`.
    """
    chance = random.Random(_SEED)
    clients = [f"198.51.{chance.randrange(256)}.{chance.randrange(1, 255)}" for _ in range(400)]
    at = datetime(2026, 5, 17, tzinfo=UTC)
    with path.open("wb") as file:
        for number in range(lines):
            at += timedelta(seconds=chance.expovariate(lines / (3 * 86_400)))
            client = clients[int(len(clients) * chance.random() ** 3)]
            malformed = number % (lines // len(_MALFORMED) + 1) == lines // 10
            line = _MALFORMED[number % len(_MALFORMED)] if malformed else _line(chance, client, at)
            file.write(line + b"\n")


def _line(chance: random.Random, client: str, at: datetime) -> bytes:
    path = _PATHS[int(len(_PATHS) * chance.random() ** 2)]
    status = 404 if path == "/missing" else 500 if chance.random() < 0.01 else 200
    size = str(chance.randrange(200, 250_000)) if status == 200 else "-"
    return (
        f"{client} - - [{at:%d/%b/%Y:%H:%M:%S %z}] "
        f'"GET {path} HTTP/1.1" {status} {size} "-" "{chance.choice(_AGENTS)}"'
    ).encode()
