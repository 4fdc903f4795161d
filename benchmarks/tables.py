"""Tables of results: for people on a terminal, and as sections of `RESULTS.md`."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
import time
import timeit
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

_WIDTH = 110
_ROOT = Path(__file__).parents[1]
_RESULTS = _ROOT / "benchmarks" / "RESULTS.md"


@dataclass(frozen=True, slots=True)
class Table:
    """The first two columns are words, the others numbers. A rule follows each `group` rows."""

    columns: Sequence[str]
    rows: list[list[str]]
    group: int


def show(tables: list[Table]) -> None:
    console = Console()
    console.width = max(console.width, _WIDTH)
    for table in tables:
        shown = RichTable(*table.columns[:2], box=SIMPLE_HEAD, header_style="bold")
        for column in table.columns[2:]:
            shown.add_column(column, justify="right")
        for number, row in enumerate(table.rows, 1):
            shown.add_row(*row, end_section=number % table.group == 0)
        console.print(shown)
        console.print()


def section(topic: str, about: str, tables: list[Table]) -> str:
    """Return a section for `RESULTS.md`; `about` explains the figures and how to repeat them."""
    title = f"## {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    parts = [title + (f", {topic}" if topic else ""), f"{environment()}. {about}"]
    for table in tables:
        lines = ["| " + " | ".join(table.columns) + " |", "|" + " --- |" * len(table.columns)]
        lines += ["| " + " | ".join(row) + " |" for row in table.rows]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def record(text: str) -> None:
    """Put a section before the others of `RESULTS.md`, in place of the last one of its part."""
    head, *sections = re.split(r"^(?=## )", _RESULTS.read_text(), flags=re.MULTILINE)
    others = (each for each in sections if _part(each) != _part(text))
    _RESULTS.write_text("".join([head, text.rstrip() + "\n\n", *others]).rstrip() + "\n")


def _part(text: str) -> tuple[str, str]:
    """Return the part of a section: its topic, and its command without the number of rounds."""
    topic = text.partition("\n")[0].partition(" UTC")[2]
    command = text.partition("Repeat with `")[2].partition("`")[0]
    script, _, options = command.partition("benchmarks/")[2].partition(" ")
    return topic + script, re.sub(r"--rounds \d+", "", options).strip()


def repeat_command(script: str, argv: Sequence[str]) -> str:
    """What makes a run again, without recording it, as Markdown."""
    words = [shlex.quote(word) for word in argv if word != "--record"]
    venv = Path(sys.prefix)
    python = venv.relative_to(_ROOT) / "bin/python" if venv.is_relative_to(_ROOT) else "python"
    return f"`{' '.join([str(python), f'benchmarks/{script}.py', *words])}`"


def environment() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    build = f"{platform.python_compiler()}, {_object_ns():.0f} ns an object"
    python = f"Python {platform.python_version()} ({build})"
    return f"{os.cpu_count()} x {model}, {platform.system()}, {python}"


class _Range:
    def __init__(self, view: memoryview, start: int) -> None:
        self.part = view[start : start + 4]


def _object_ns() -> float:
    """Return the CPU time of making a small object, which differs by build of Python."""
    made = 10_000
    view = memoryview(bytes(8))
    timer = timeit.Timer(lambda: _Range(view, 2), timer=time.process_time)
    return min(timer.repeat(repeat=20, number=made)) / made * 1e9
