"""Responses that clients noted in their journals, and records that readers found.

The module does no I/O except reading journals. A journal is a file of lines, each a JSON object
with one key for its kind:

    {"acknowledged": [partition, offset, value]}   a delivery report without an error
    {"began": number} {"ended": [number, how]}     a transaction, and "committed" or "aborted"
    {"commit": {partition: offset}}                offsets whose commit was acknowledged
    {"read": [partition, first, last]}             offsets that a member received
    {"violation": text}                            a response that must never occur
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Stored(NamedTuple):
    """A record as a reader or a delivery report has it."""

    partition: int
    offset: int
    value: str


@dataclass
class History:
    """The history of all clients together."""

    acknowledged: list[Stored] = field(default_factory=list)
    transactions: dict[str, str] = field(default_factory=dict)
    """By producer and number: "committed", "aborted", or "unknown" without a response."""
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    """The highest offset by group and partition whose commit was acknowledged."""
    read: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Offsets of each partition that members of the readers' group received."""
    violations: list[str] = field(default_factory=list)

    def note(self, writer: str, line: dict[str, Any]) -> None:
        """Add a line of a client; the part of its name before the dot is its group's."""
        ((kind, what),) = line.items()
        match kind:
            case "acknowledged":
                self.acknowledged.append(Stored(*what))
            case "began":
                self.transactions[f"{writer}/{what}"] = "unknown"
            case "ended":
                self.transactions[f"{writer}/{what[0]}"] = what[1]
            case "commit":
                for index, offset in what.items():
                    key = writer.partition(".")[0], int(index)
                    self.committed[key] = max(offset, self.committed.get(key, 0))
            case "read":
                self.read[what[0]].update(range(what[1], what[2] + 1))
            case "violation":
                self.violations.append(f"{writer}: {what}")
            case _:
                raise ValueError(f"{writer} wrote {kind!r}")


class Journals:
    """The journals in a folder, named by their writers; each is read once, as it grows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.history = History()
        self._positions: dict[Path, int] = defaultdict(int)

    def look(self) -> History:
        """Return the history so far. The next call reads a line that is incomplete now."""
        for path in sorted(self.folder.iterdir()):
            with path.open("rb") as file:
                file.seek(self._positions[path])
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._positions[path] += len(whole) + 1
                self._note(path.stem, whole.split(b"\n"))
        return self.history

    def _note(self, writer: str, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.history.note(writer, json.loads(line))
