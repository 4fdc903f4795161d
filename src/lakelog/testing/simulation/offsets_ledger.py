"""Committed offsets as their committers know them, and who owned which partition when.

Every commit has a number of its own that only rises, so what a fetch brings tells which commit it
was. A commit whose answer was lost may have been done, at any time after it was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakelog.testing.simulation.ledger import Ledger, Place, Transaction

_Key = tuple[str, Place]
_OFFSETS = "__consumer_offsets"


@dataclass(slots=True)
class _Commits:
    sent: dict[int, Transaction | None] = field(default_factory=dict)
    acked: dict[int, Mapping[Place, int]] = field(default_factory=dict)
    """Those that are certainly done, and where the logs ended by then."""


@dataclass(slots=True)
class Lease:
    """What a member of a consumer group may read, and until when nobody else may."""

    member: str
    partitions: frozenset[Place]
    until: float


class OffsetsLedger:
    """Of all groups."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._commits: dict[_Key, _Commits] = {}
        self._next = 0
        self._owners: dict[tuple[str, int, Place], str] = {}
        self._leases: dict[str, dict[str, Lease]] = {}

    # Offsets

    def will_commit(self, group: str, place: Place, transaction: Transaction | None = None) -> int:
        """The offset to be committed."""
        self._next += 1
        commits = self._commits.setdefault((group, place), _Commits())
        commits.sent[self._next] = transaction
        return self._next

    def acknowledged(self, group: str, place: Place, value: int, ends: Mapping[Place, int]) -> None:
        """Done, but for one of a transaction, which is done with that.

        `ends` are those of the logs: the record of it is below.
        """
        commits = self._commits[group, place]
        self._ledger.counts["offsets committed"] += 1
        if commits.sent[value] is None:
            commits.acked[value] = ends

    def last_done(self, group: str, place: Place) -> int:
        """What a fetch that is sent now must find, or something newer; -1 for nothing."""
        commits = self._commits.get((group, place))
        if commits is None:
            return -1
        done = [
            value
            for value, transaction in commits.sent.items()
            if transaction is not None and transaction.is_committed
        ]
        return max([-1, *commits.acked, *done])

    def cut(self, place: Place, end: int) -> None:
        """A log has lost its end; what lay there in the log of a group's offsets may be undone.

        So may what it says of members and generations, which nothing outside of it remembers.
        """
        if place[0] != _OFFSETS:
            return
        self._owners.clear()
        self._leases.clear()
        for commits in self._commits.values():
            kept = commits.acked.items()
            commits.acked = {value: at for value, at in kept if at.get(place, end + 1) <= end}

    def fetched(self, group: str, place: Place, value: int, at_least: int) -> None:
        """`at_least` is what `last_done` gave before the fetch was sent."""
        self._ledger.counts["offsets fetched"] += 1
        commits = self._commits.get((group, place), _Commits())
        if value == -1:
            self._ledger.expect(
                at_least == -1, f"group {group} has lost its offset of {place}: {at_least}"
            )
            return
        if value not in commits.sent:
            self._ledger.violation(f"group {group} has {value} for {place}, never committed")
            return
        transaction = commits.sent[value]
        if transaction is not None and transaction.is_open_or_aborted:
            self._ledger.violation(
                f"group {group} has {value} for {place}: its transaction {transaction.name} is "
                f"{transaction.fate.value}"
            )
        self._ledger.expect(
            value >= at_least, f"group {group} went back from {at_least} to {value} for {place}"
        )

    def groups(self) -> list[_Key]:
        return list(self._commits)

    # Owners

    def assigned(self, group: str, generation: int, member: str, places: list[Place]) -> None:
        """In a classic group: one owner per partition in each generation."""
        for place in places:
            owner = self._owners.setdefault((group, generation, place), member)
            self._ledger.counts["assignments"] += 1
            if owner != member:
                self._ledger.violation(
                    f"{place} has two owners in generation {generation} of {group}: "
                    f"{owner} and {member}"
                )

    def lease(self, group: str, lease: Lease, now: float) -> None:
        """Replaces the member's older one; must overlap nobody else's."""
        leases = self._leases.setdefault(group, {})
        leases[lease.member] = lease
        self._ledger.counts["leases"] += 1
        for other in leases.values():
            both = other.partitions & lease.partitions
            if other.member != lease.member and other.until > now and both:
                self._ledger.violation(
                    f"{sorted(both)} of {group} belong to {lease.member} and to {other.member}"
                )

    def give_up(self, group: str, member: str) -> None:
        """The member has left, or knows that it was expelled."""
        self._leases.get(group, {}).pop(member, None)
