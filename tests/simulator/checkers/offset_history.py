"""The history of committed offsets.

Every commit has a unique, rising number as its offset, so that a fetched offset identifies the
commit. A commit without a response may be done at any time after it was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place, Transaction

_Key = tuple[str, Place]
_OFFSETS = "__consumer_offsets"


@dataclass(slots=True)
class _Commits:
    """Commits of one group for one partition, by their offsets."""

    sent: dict[int, Transaction | None] = field(default_factory=dict)
    acked: dict[int, Mapping[Place, int]] = field(default_factory=dict)
    """Log end offsets when the commit was acknowledged: its record is below them."""


class OffsetHistory:
    """All groups of a world."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._commits: dict[_Key, _Commits] = {}
        self._next = 0
        self.on_acknowledged: Callable[[], object] = lambda: None
        """Called when a client receives an acknowledgement."""

    def will_commit(
        self, group: str, partition: Place, transaction: Transaction | None = None
    ) -> int:
        """Record a commit before its request; return the offset to commit."""
        self._next += 1
        commits = self._commits.setdefault((group, partition), _Commits())
        commits.sent[self._next] = transaction
        return self._next

    def acknowledged(
        self, group: str, partition: Place, value: int, ends: Mapping[Place, int]
    ) -> None:
        """Record the response to a commit; `ends` are log end offsets at that time.

        A commit in a transaction is done only when the transaction is.
        """
        commits = self._commits[group, partition]
        assert value in commits.sent, f"{value} was not committed"
        self._findings.counts["offsets committed"] += 1
        self.on_acknowledged()
        if commits.sent[value] is None:
            commits.acked[value] = ends

    def last_done(self, group: str, partition: Place) -> int:
        """Return the offset that a fetch sent now must find, or a newer one; -1 without one."""
        commits = self._commits.get((group, partition))
        if commits is None:
            return -1
        done = [
            value
            for value, transaction in commits.sent.items()
            if transaction is not None and transaction.is_committed
        ]
        return max([-1, *commits.acked, *done])

    def cut(self, partition: Place, end: int) -> None:
        """Forget acknowledged commits if the log with their records lost its end."""
        if partition[0] != _OFFSETS:
            return
        for commits in self._commits.values():
            kept = commits.acked.items()
            commits.acked = {value: at for value, at in kept if at.get(partition, end + 1) <= end}

    def fetched(self, group: str, partition: Place, value: int, at_least: int) -> None:
        """Check a fetched offset; `at_least` is `last_done` before the request was sent."""
        self._findings.counts["offsets fetched"] += 1
        commits = self._commits.get((group, partition), _Commits())
        if value == -1:
            self._findings.expect(
                Law.OFFSET_KEPT,
                at_least == -1,
                f"group {group} has lost its offset of {partition}: {at_least}",
            )
            return
        if value not in commits.sent:
            self._findings.violation(
                Law.OFFSET_SENT, f"group {group} has {value} for {partition}, never committed"
            )
            return
        transaction = commits.sent[value]
        if transaction is not None and transaction.is_open_or_aborted:
            self._findings.violation(
                Law.OFFSET_DECIDED,
                f"group {group} has {value} for {partition}: its transaction {transaction.name} is "
                f"{transaction.fate.value}",
            )
        self._findings.expect(
            Law.OFFSET_FORWARD,
            value >= at_least,
            f"group {group} went back from {at_least} to {value} for {partition}",
        )

    def groups(self) -> list[_Key]:
        """Return each group and partition with a commit, in the order of the first commits."""
        return list(self._commits)
