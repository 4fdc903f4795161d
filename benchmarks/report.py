"""Renders results as a table for people and as Markdown for `RESULTS.md`."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from load import Case, Measurement
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

_WIDTH = 110
LOAD_COLUMNS = (
    "case",
    "broker",
    "MB/s",
    "requests/s",
    "CPU-s/GB",
    "requests/CPU-s",
    "p50 ms",
    "p99 ms",
    "per CPU-s",
)
START_COLUMNS = ("start", "broker", "ready s", "idle MB")


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds to the first reply, the median of some starts, and resident memory in 10^6 bytes ten
    seconds after the last.
    """

    name: str
    broker: str
    ready_s: float
    idle_mb: float


@dataclass(slots=True)
class Results:
    """Everything one run measured. Runs of a case are in the order they were made."""

    brokers: list[str]
    loads: dict[tuple[Case, str], list[Measurement]] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)

    def load_rows(self) -> list[list[str]]:
        cases = list(dict.fromkeys(case for case, _ in self.loads))
        return [self._load_row(case, name) for case in cases for name in self.brokers]

    def _load_row(self, case: Case, name: str) -> list[str]:
        runs = self.loads[case, name]
        return [
            case.name,
            name,
            f"{median(run.mb_per_s for run in runs):,.0f}",
            f"{median(run.requests_per_s for run in runs):,.0f}",
            f"{median(run.cpu_s_per_gb for run in runs):.2f}",
            f"{median(run.requests_per_cpu_s for run in runs):,.0f}",
            f"{median(run.p50_ms for run in runs):.2f}",
            f"{median(run.p99_ms for run in runs):.2f}",
            self._ratio(case, name),
        ]

    def _ratio(self, case: Case, name: str) -> str:
        """This broker's requests per server-CPU-second over those of the other one."""
        if name == self.brokers[-1]:
            return ""
        own, other = (
            median(run.requests_per_cpu_s for run in self.loads[case, broker])
            for broker in (name, self.brokers[-1])
        )
        return f"{own / other:.2f} x"

    def start_rows(self) -> list[list[str]]:
        return [[s.name, s.broker, f"{s.ready_s:.2f}", f"{s.idle_mb:.0f}"] for s in self.starts]


def environment() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{os.cpu_count()} x {model}, {platform.system()}, Python {platform.python_version()}"


def show(results: Results) -> None:
    console = Console()
    console.width = max(console.width, _WIDTH)
    for columns, rows in _tables(results):
        table = Table(*columns[:2], box=SIMPLE_HEAD, header_style="bold")
        for column in columns[2:]:
            table.add_column(column, justify="right")
        for number, row in enumerate(rows, 1):
            table.add_row(*row, end_section=number % len(results.brokers) == 0)
        console.print(table)
        console.print()


def markdown(results: Results, rounds: int, command: str) -> str:
    """A section for `RESULTS.md`: the environment, the command that repeats it, the tables."""
    parts = [
        f"## {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"{environment()}. Median of {rounds} interleaved rounds. Repeat with `{command}`.",
    ]
    for columns, rows in _tables(results):
        lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _tables(results: Results) -> list[tuple[tuple[str, ...], list[list[str]]]]:
    tables = [(LOAD_COLUMNS, results.load_rows()), (START_COLUMNS, results.start_rows())]
    return [(columns, rows) for columns, rows in tables if rows]
