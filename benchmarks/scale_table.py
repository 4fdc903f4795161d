"""Tables of what `scale.py` measured, for people and as Markdown for `RESULTS.md`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from report import environment
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

_WIDTH = 110


@dataclass(slots=True)
class Table:
    """`columns` name what stands in a row after its first cell."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)

    def add(self, name: str, *cells: object) -> None:
        self.rows.append([name, *(_text(cell) for cell in cells)])

    def show(self) -> None:
        console = Console()
        console.width = max(console.width, _WIDTH)
        table = RichTable(
            "", title=self.title, title_justify="left", box=SIMPLE_HEAD, header_style="bold"
        )
        for column in self.columns:
            table.add_column(column, justify="right")
        for row in self.rows:
            table.add_row(*row)
        console.print(table)

    def markdown(self) -> str:
        lines = [
            f"{self.title}\n",
            "| | " + " | ".join(self.columns) + " |",
            "|" + " --- |" * (len(self.columns) + 1),
            *("| " + " | ".join(row) + " |" for row in self.rows),
        ]
        return "\n".join(lines)


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.2f}" if cell < 100 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def section(tables: Sequence[Table], command: str) -> str:
    """A section for `RESULTS.md`: the environment, the command that repeats it, the tables."""
    parts = [
        f"## {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, as things grow",
        f"{environment()}. Repeat with `{command}`.",
        *(table.markdown() for table in tables),
    ]
    return "\n\n".join(parts) + "\n"
