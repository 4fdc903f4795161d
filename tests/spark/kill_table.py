"""The table of the kills of a run: their phases, and the lost and repeated records."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from functools import reduce
from operator import add

SWAP = "between metadata file and catalog swap"
TASK_WRITING = "task writing"
COMPACTION = "compaction"
EXPIRY = "expiry"
STOPPED = "old driver stopped over a successor's commits"
TRUNCATED = "broker with a truncated tail"
PLANNING = "planning"
LAST_ACK = "after the task's last acknowledgement"
COMMIT_SENT = "commit set sent but unanswered"
PHASES = {
    "planning": PLANNING,
    "task-writing": TASK_WRITING,
    "before-writing": TASK_WRITING,
    "file-written": TASK_WRITING,
    "after-last-ack": LAST_ACK,
    "commit-sent": COMMIT_SENT,
    "after-commit": "committed, unknown to Spark",
    "letters-committed": "dead letters committed, rows not",
    "metadata-written": SWAP,
    "after-the-commit": "committed, unknown to Spark",
}
"""The phases of a micro-batch by the points of kills."""
FORMS = 12
"""The long forms, which `make kills` runs all."""
_REQUIRED = (
    PLANNING,
    TASK_WRITING,
    LAST_ACK,
    COMMIT_SENT,
    SWAP,
    EXPIRY,
    COMPACTION,
    TRUNCATED,
)
_SHARE = 10 / 12


@dataclass(frozen=True)
class Row:
    """The kills in one phase, and the batches and records of the source meanwhile."""

    kills: int
    batches: int
    records: int
    lost: int
    twice: int

    def __add__(self, other: Row) -> Row:
        return Row(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


class Ledger:
    """The kills of one run, each with its phase and the records and batches before it."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, int, int]] = []

    def begin(self, phase: str, produced: int, batches: int) -> None:
        """Note a kill. produced: records of the source so far. batches: committed ones."""
        self._parts.append((phase, produced, batches))

    def rows(
        self, copies: Iterable[tuple[int, int]], produced: int, batches: int
    ) -> dict[str, Row]:
        """Return a row for each phase with kills.

        copies: how often the target has each record of the source, by the record's number.
        """
        firsts = [first for _, first, _ in self._parts]
        lost, twice = [0] * len(firsts), [0] * len(firsts)
        for number, count in copies:
            part = bisect_right(firsts, number) - 1
            if part >= 0:
                lost[part] += count == 0
                twice[part] += count > 1
        ends = [(first, before) for _, first, before in self._parts[1:]] + [(produced, batches)]
        found = KillTable()
        for n, ((phase, first, before), (end, after)) in enumerate(
            zip(self._parts, ends, strict=True)
        ):
            found.add({phase: Row(1, after - before, end - first, lost[n], twice[n])})
        return found.rows


class KillTable:
    """Sums of rows by phase."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._forms = 0

    def add(self, rows: Mapping[str, Row]) -> None:
        for phase, row in rows.items():
            self.rows[phase] = row + self.rows[phase] if phase in self.rows else row

    def report(self, rows: Mapping[str, Row], name: str) -> None:
        """Add the rows of one form, and print them."""
        self.add(rows)
        self._forms += 1
        one = KillTable()
        one.add(rows)
        print(one.text(f"{name}:"), flush=True)

    def check(self, kills: int) -> None:
        """Assert that a run of all forms has enough kills in each phase that it must have.

        kills: of each form, at each of its points or in all.
        """
        if self._forms == FORMS:
            counts = {phase: self.rows[phase].kills for phase in _REQUIRED if phase in self.rows}
            wanted = int(kills * _SHARE)
            assert all(counts.get(phase, 0) >= wanted for phase in _REQUIRED), counts

    def text(self, heading: str) -> str:
        """Return the table as Markdown; the last row has the sums."""
        names = [field.name for field in fields(Row)]
        rows = {**self.rows, "all": reduce(add, self.rows.values())}
        lines = [("phase", *names), ("---",) * (len(names) + 1)]
        lines += [
            (phase, *(f"{number:,}" for number in astuple(row))) for phase, row in rows.items()
        ]
        return "\n".join(["", heading, "", *(f"| {' | '.join(line)} |" for line in lines)])
