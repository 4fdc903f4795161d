"""The lines of the demo's log, and the report about them.

Only `\\n` ends a line, and lines are not normalized: a record's value is the exact bytes of its
line, also `\\r`, NUL or invalid UTF-8. A last line without `\\n` counts as a line.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakelog.spark.demo.proof import Found

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
