"""Prints results on stdout and notes on stderr; the only place that knows both forms.

A command hands over a `Listing` (rows), a `Document` (one thing with parts) or plain text. As JSON
every key is always there, null when it does not apply.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

_PIPED_WIDTH = 100_000
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of equal keys. `columns` are those that a table shows, in order."""

    rows: Sequence[Row]
    columns: tuple[str, ...]
    title: str = ""
    empty: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """One thing: `data` is its JSON; a table shows `facts`, then each part."""

    data: Row
    facts: Row = field(default_factory=dict)
    parts: Sequence[Listing] = ()


Result = Listing | Document | str


def show(result: Result, form: str = "table") -> None:
    """Prints a result in the form asked for: table, json or jsonl."""
    show_all([result], form)


def show_all(results: Sequence[Result], form: str = "table") -> None:
    """Prints several; as JSON they become one array."""
    if form == "table":
        for number, result in enumerate(results):
            _show_table(result, first=number == 0)
        return
    rows = [row for result in results for row in _rows(result)]
    single = len(results) == 1 and isinstance(results[0], Document)
    if form == "jsonl":
        for row in rows:
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
    else:
        value = rows[0] if single else rows
        sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def note(text: str, *, quiet: bool = False) -> None:
    """A line for the person, on stderr."""
    if not quiet:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def counted(number: int, noun: str) -> str:
    """For example "1 record" and "2,000 records"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _rows(result: Result) -> Sequence[Row]:
    if isinstance(result, Listing):
        return result.rows
    if isinstance(result, Document):
        return [result.data]
    return [{"text": result}]


def _show_table(result: Result, *, first: bool) -> None:
    if not first:
        sys.stdout.write("\n")
    if isinstance(result, str):
        sys.stdout.write(result + "\n")
    elif isinstance(result, Listing):
        _print_listing(result)
    else:
        width = max((len(name) for name in result.facts), default=0)
        for name, value in result.facts.items():
            sys.stdout.write(f"{_heading(name):<{width}}  {cell(value)}\n")
        for part in result.parts:
            sys.stdout.write("\n")
            _print_listing(part)


def _print_listing(listing: Listing) -> None:
    if not listing.rows:
        if listing.empty:
            note(listing.empty)
        return
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    with console.capture() as capture:
        console.print(_table(listing))
    sys.stdout.write(
        "\n".join(line.rstrip() for line in capture.get().splitlines() if line.strip())
    )
    sys.stdout.write("\n")


def _table(listing: Listing) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=listing.title or None,
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    for name in listing.columns:
        values = [row.get(name) for row in listing.rows]
        is_number = all(_is_number(value) for value in values)
        justify = "right" if is_number else "left"
        table.add_column(_heading(name), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in listing.rows:
        table.add_row(*(Text(cell(row.get(name))) for name in listing.columns))
    return table


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _heading(name: str) -> str:
    return name.replace("_", " ")


def cell(value: object) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in value) or "-"
    return printable(str(value))


def printable(text: str) -> str:
    """Text that cannot move the cursor: what is not printable becomes a backslash escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
