"""Column widths of a table on a terminal of limited width; no I/O.

A number is never split over two lines: a column is at least as wide as its longest number. Headings
wrap between words, and text folds to a width of at least `_TEXT_WIDTH_MIN`. If the table is still
too wide, text columns are left out from the right, except the first column. If the number columns
alone do not fit, there is no layout, and the caller prints each row as a list of fields.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

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
        return max(cell_len(self.heading), self._longest)

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
    return max(map(cell_len, texts), default=0)
