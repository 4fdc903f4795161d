"""Prints results on stdout and notes on stderr, in all output formats.

A command returns a `Listing` (rows), a `Document` (one object with parts) or plain text. `json`
prints one array, for any number of objects; `jsonl` prints one object per line. Every key is
present, with null where it does not apply.

A table is fitted to the terminal. A number is never split over two lines: a column is at least as
wide as its longest number. Headings wrap between words, and text folds to a width of at least
`_TEXT_WIDTH_MIN`. If the table is still too wide, text columns are left out from the right, except
the first column. If the number columns alone do not fit, each row is printed as a list of fields.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


_GAP = 2
_RULE = "─"
_WIDTH_UNKNOWN = 80
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows with equal keys. `columns` of the table are in order, by default all keys."""

    rows: Sequence[Row]
    columns: tuple[str, ...] = ()
    title: str = ""
    empty: str = ""

    def __post_init__(self) -> None:
        if self.rows and not self.columns:
            object.__setattr__(self, "columns", tuple(self.rows[0]))


@dataclass(frozen=True, slots=True)
class Document:
    """One object: `data` is its JSON; a table shows `facts`, then each part."""

    data: Row
    facts: Row = field(default_factory=dict)
    parts: Sequence[Listing] = ()


class Noted(str):
    """A value with a note in tables: `604800000 (7d)`. JSON has the value alone."""

    note: str

    def __new__(cls, value: str, note: str) -> Noted:
        noted = super().__new__(cls, value)
        noted.note = note
        return noted


class Size(int):
    """A number of bytes: tables show `1.5 MB`, JSON the number."""


Result = Listing | Document | str


def show(result: Result, form: str = "table") -> None:
    """Print a result as table, json or jsonl."""
    show_all([result], form)


def show_all(results: Sequence[Result], form: str = "table") -> None:
    """Print several results; as JSON their rows become one array."""
    if form == "table":
        for number, result in enumerate(results):
            _show_table(result, first=number == 0)
        return
    import json

    rows = [row for result in results for row in _rows(result)]
    if form == "jsonl":
        for row in rows:
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(json.dumps(rows, ensure_ascii=False, indent=2) + "\n")


def note(text: str, *, quiet: bool = False) -> None:
    """Print a line for the user on stderr."""
    if not quiet:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def counted(number: int, noun: str) -> str:
    """Return number and noun: "1 record", "2,000 records"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def sized(number: int) -> str:
    """For example "77 B" and "1.5 MB"."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number} B"


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
        if result.facts:
            sys.stdout.write(_fields(result.facts, result.facts) + "\n")
        for part in result.parts:
            sys.stdout.write("\n")
            _print_listing(part)


def _print_listing(listing: Listing) -> None:
    if not listing.rows:
        if listing.empty:
            note(listing.empty)
        return
    text = _aligned(listing)
    width = _terminal_width()
    if width is None or _fits(text, width):
        sys.stdout.write(text)
        return
    from rich.console import Console

    from lakelog.cli.render import fit

    console = Console(file=sys.stdout, highlight=False, width=width)
    columns = [_column(name, listing.rows) for name in listing.columns]
    fitting = fit(columns, width, _GAP)
    if not fitting:
        sys.stdout.write("\n\n".join(_fields(row, listing.columns) for row in listing.rows) + "\n")
        return
    with console.capture() as capture:
        console.print(_table(listing.title, fitting))
    sys.stdout.write(
        "\n".join(line.rstrip() for line in capture.get().splitlines() if line.strip())
    )
    sys.stdout.write("\n")
    shown = [column for column, _ in fitting]
    hidden = [column.heading for column in columns if column not in shown]
    if hidden:
        note(f"not shown on {width} columns: {', '.join(hidden)}; use -f json to see them")


def _aligned(listing: Listing) -> str:
    """Return the table without wrapping; imports nothing."""
    rows = [
        [_heading(name) for name in listing.columns],
        *([cell(row.get(name)) for name in listing.columns] for row in listing.rows),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = [_are_numbers(row.get(name) for row in listing.rows) for name in listing.columns]
    gap = " " * _GAP
    lines = [
        gap.join(
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, _RULE * (sum(widths) + _GAP * (len(widths) - 1)))
    if listing.title:
        lines.insert(0, listing.title)
    return "\n".join(lines) + "\n"


def _terminal_width() -> int | None:
    """Return the width of the terminal, or `None` if stdout is not a terminal."""
    if not sys.stdout.isatty():
        return None
    return os.get_terminal_size(sys.stdout.fileno()).columns or _WIDTH_UNKNOWN


def _fits(text: str, width: int) -> bool:
    """Return whether the lines fit without wrapping; a wide character takes two columns."""
    return all(
        len(line) <= width and (line.isascii() or line == _RULE * len(line))
        for line in text.splitlines()
    )


def _column(name: str, rows: Sequence[Row]) -> Column:
    from lakelog.cli.render import Column

    values = [row.get(name) for row in rows]
    return Column(_heading(name), [cell(value) for value in values], _are_numbers(values))


def _table(title: str, columns: Sequence[tuple[Column, int]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title or None,
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, _GAP - 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for column, width in columns:
        justify = "right" if column.is_number else "left"
        table.add_column(column.heading, justify=justify, overflow="fold", width=width)  # type: ignore[arg-type]
    for cells in zip(*(column.cells for column, _ in columns), strict=True):
        table.add_row(*map(Text, cells))
    return table


def _fields(facts: Row, names: Collection[str]) -> str:
    """Return a line for each name and its value."""
    width = max(map(len, names), default=0)
    return "\n".join(f"{_heading(name):<{width}}  {cell(facts.get(name))}" for name in names)


def _are_numbers(values: Iterable[object]) -> bool:
    return all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        for value in values
    )


def _heading(name: str) -> str:
    return name.replace("_", " ")


def cell(value: object) -> str:
    """Return a value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in value) or "-"
    if isinstance(value, Size):
        return sized(value)
    text = printable(str(value))
    return f"{text} ({value.note})" if isinstance(value, Noted) else text


def printable(text: str) -> str:
    """Return text that cannot move the cursor: unprintable characters become backslash escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


_TEXT_WIDTH_MIN = 8
_NUMBER = re.compile(r"[-+]?\d[\d.,]*")


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A heading and its cells; `is_number` if every cell is a number or missing."""

    heading: str
    cells: Sequence[str]
    is_number: bool

    @property
    def full(self) -> int:
        """The width without wrapping."""
        return max(_longest([self.heading]), self._longest)

    @property
    def folded(self) -> int:
        """The width at which only the heading wraps."""
        return max(_longest(self.heading.split()), self._longest)

    @property
    def least(self) -> int:
        """The smallest width at which no number and no word of the heading is split."""
        if self.is_number:
            return self.folded
        words = [word for cell in self.cells for word in cell.split() if _NUMBER.fullmatch(word)]
        text = min(self._longest, _TEXT_WIDTH_MIN)
        return max(_longest(self.heading.split()), _longest(words), text)

    @property
    def _longest(self) -> int:
        return _longest(self.cells)


def fit(columns: Sequence[Column], room: int, gap: int) -> list[tuple[Column, int]]:
    """Return the columns that fit into `room` cells with their widths, `gap` between them.

    The result is empty if the number columns do not fit.
    """
    shown = list(columns)
    while shown:
        inner = room - gap * (len(shown) - 1)
        if sum(column.least for column in shown) <= inner:
            return list(zip(shown, _widths(shown, inner), strict=True))
        texts = [column for column in shown[1:] if not column.is_number]
        if not texts:
            break
        shown.remove(texts[-1])
    return []


def _widths(columns: Sequence[Column], room: int) -> list[int]:
    full = [column.full for column in columns]
    if sum(full) <= room:
        return full
    folded = [column.folded for column in columns]
    given = [column.least for column in columns]
    for _ in range(min(room, sum(folded)) - sum(given)):
        narrow = [number for number, width in enumerate(given) if width < folded[number]]
        given[min(narrow, key=given.__getitem__)] += 1
    return given


def _longest(texts: Sequence[str]) -> int:
    """Return the number of cells of the widest text; wide characters take two."""
    from rich.cells import cell_len

    return max(map(cell_len, texts), default=0)
