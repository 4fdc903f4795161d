"""Prints the demo's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

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
