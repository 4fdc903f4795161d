"""The table of the kills of a run: in which phases, and what became of the records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, fields
from functools import reduce
from operator import add

from spark.kills import Row


class KillTable:
    """Sums of rows by phase."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}

    def add(self, rows: Mapping[str, Row]) -> None:
        for phase, row in rows.items():
            self._rows[phase] = row + self._rows[phase] if phase in self._rows else row

    def text(self, heading: str) -> str:
        """Return the table as Markdown; the last row has the sums."""
        names = [field.name for field in fields(Row)]
        rows = {**self._rows, "all": reduce(add, self._rows.values())}
        lines = [("phase", *names), ("---",) * (len(names) + 1)]
        lines += [
            (phase, *(f"{number:,}" for number in astuple(row))) for phase, row in rows.items()
        ]
        return "\n".join(["", heading, "", *(f"| {' | '.join(line)} |" for line in lines)])
