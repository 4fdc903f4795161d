"""Who owned which partition when, and who has which instance id, as the members were told.

A static member (KIP-345) is known by its instance id: whoever takes that over has another member
id, owns what the one before owned, and fences it.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.testing.simulation.checkers.findings import Findings
from lakelog.testing.simulation.checkers.laws import Law
from lakelog.testing.simulation.checkers.observations import Place

_GROUPS = "__consumer_offsets"


@dataclass(slots=True)
class Lease:
    """What a member of a consumer group may read, and until when nobody else may."""

    member: str
    partitions: frozenset[Place]
    until: float


@dataclass(slots=True)
class _Holder:
    """Of an instance id. A takeover that is in no log yet is forgotten by the next coordinator."""

    asked_at: float
    told_at: float
    replaced_in: int = -1
    """The broker's start in which somebody took its place."""
    replaced: bool = False
    """For good."""


class MembershipHistory:
    """Of all groups."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._owners: dict[tuple[str, int, Place], str] = {}
        self._generations: dict[str, int] = {}
        self._leases: dict[str, dict[str, Lease]] = {}
        self._holders: dict[tuple[str, str], dict[str, _Holder]] = {}
        self._fenced: dict[str, _Holder] = {}
        self._loading_at: dict[str, float] = {}

    def cut(self, place: Place) -> None:
        """A log has lost its end: nothing outside of it remembers members and generations."""
        if place[0] == _GROUPS:
            for known in (self._owners, self._generations, self._leases, self._holders):
                known.clear()
            self._fenced.clear()

    # Classic groups

    def generation(self, group: str) -> int:
        """The newest that was assigned: it is in the log."""
        return self._generations.get(group, 0)

    def assigned(self, group: str, generation: int, owner: str, places: list[Place]) -> None:
        """One owner per partition in each generation; a static member by its instance id."""
        self._generations[group] = max(generation, self.generation(group))
        for place in places:
            known = self._owners.setdefault((group, generation, place), owner)
            self._findings.counts["assignments"] += 1
            if known != owner:
                self._findings.violation(
                    Law.GENERATION_OWNER,
                    f"{place} has two owners in generation {generation} of {group}: "
                    f"{known} and {owner}",
                )

    # Groups of KIP-848

    def lease(self, group: str, lease: Lease, now: float) -> None:
        """Replaces the member's older one; must overlap nobody else's."""
        leases = self._leases.setdefault(group, {})
        leases[lease.member] = lease
        self._findings.counts["leases"] += 1
        for other in leases.values():
            both = other.partitions & lease.partitions
            if other.member != lease.member and other.until > now and both:
                self._findings.violation(
                    Law.ONE_OWNER,
                    f"{sorted(both)} of {group} belong to {lease.member} and to {other.member}",
                )

    def give_up(self, group: str, member: str) -> None:
        """The member has left, or knows that it was expelled."""
        self._leases.get(group, {}).pop(member, None)

    # Static members

    def holds(
        self,
        group: str,
        instance: str,
        member_id: str,
        times: tuple[float, float],
        starts: int,
        *,
        written: bool,
    ) -> None:
        """A member that asked and was told at these times has the instance id.

        `starts` is how often brokers had been started when it asked. Whoever was told so before it
        asked is replaced: for good if `written`.
        """
        holders = self._holders.setdefault((group, instance), {})
        new = holders.setdefault(member_id, _Holder(*times))
        for other_id, other in holders.items():
            if other is not new and other.told_at < new.asked_at:
                self._findings.counts["instances replaced"] += not self._fenced.get(other_id)
                self._fenced[other_id] = other
                other.replaced_in = starts
                other.replaced |= written

    def fenced(self, group: str, instance: str, member_id: str, starts: int) -> None:
        """The member was told that it is replaced."""
        holders = self._holders.setdefault((group, instance), {})
        holder = self._fenced[member_id] = holders.setdefault(member_id, _Holder(0.0, 0.0))
        holder.replaced_in = max(starts, holder.replaced_in)

    def is_fenced(self, member_id: str, starts: int) -> bool:
        holder = self._fenced.get(member_id)
        return holder is not None and (holder.replaced or holder.replaced_in == starts)

    @property
    def static_groups(self) -> set[str]:
        return {group for group, _ in self._holders}

    def loads(self, group: str, now: float) -> None:
        """Its coordinator has yet to learn who is in it."""
        self._loading_at[group] = now

    def was_loading(self, group: str, since: float) -> bool:
        """Whether a heartbeat may have been answered as if all were well, whoever sent it.

        Source: `GroupCoordinatorService.heartbeat` of Apache Kafka.
        """
        return self._loading_at.get(group, -1.0) >= since
