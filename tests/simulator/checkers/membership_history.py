"""The history of group members: which member owned which partition, and each instance id.

A static member (KIP-345) is identified by its instance id. A process that takes an instance id over
has another member id, owns the partitions of the previous one, and fences it.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place

_GROUPS = "__consumer_offsets"


@dataclass(slots=True)
class Lease:
    """Partitions that a member of a consumer group owns, exclusively until the time `until`."""

    member: str
    partitions: frozenset[Place]
    until: float
    """The loop's time in seconds."""


@dataclass(slots=True)
class _Holder:
    """A member id that holds, or held, an instance id. Times are the loop's, in seconds."""

    asked_at: float
    answered_at: float
    replaced_in: int = -1
    """The number of broker starts when another member took over: a takeover that is not yet in
    the log is lost at the next start."""
    replaced: bool = False
    """Whether the takeover is in the log, and therefore final."""


class MembershipHistory:
    """All groups of a world."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._owners: dict[tuple[str, int, Place], str] = {}
        self._generations: dict[str, int] = {}
        self._leases: dict[str, dict[str, Lease]] = {}
        self._holders: dict[tuple[str, str], dict[str, _Holder]] = {}
        self._fenced: dict[str, _Holder] = {}
        self._loading_at: dict[str, float] = {}

    def cut(self, partition: Place) -> None:
        """Forget all members if a log of groups lost its end: only it has them."""
        if partition[0] == _GROUPS:
            for known in (self._owners, self._generations, self._leases, self._holders):
                known.clear()
            self._fenced.clear()

    # Classic groups

    def generation(self, group: str) -> int:
        """Return the newest generation that members were assigned, which is in the log, or 0."""
        return self._generations.get(group, 0)

    def assigned(self, group: str, generation: int, owner: str, partitions: list[Place]) -> None:
        """Check an assignment of a generation; `owner` is an instance id or a member id."""
        self._generations[group] = max(generation, self.generation(group))
        for partition in partitions:
            known = self._owners.setdefault((group, generation, partition), owner)
            self._findings.counts["assignments"] += 1
            if known != owner:
                self._findings.violation(
                    Law.GENERATION_OWNER,
                    f"{partition} has two owners in generation {generation} of {group}: "
                    f"{known} and {owner}",
                )

    # Groups of KIP-848

    def lease(self, group: str, lease: Lease, now: float) -> None:
        """Replace the member's previous lease; check that it overlaps no other valid one."""
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
        """End the lease of a member that left, or knows that it was expelled."""
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
        """Record that a member holds an instance id, and that it replaced earlier holders.

        Earlier holders received their response before this member sent its request.

        Args:
            times: of the request and of the response.
            starts: how many times brokers were started before the request.
            written: whether the takeover is in the log, and therefore final.
        """
        assert times[0] <= times[1], times
        holders = self._holders.setdefault((group, instance), {})
        new = holders.setdefault(member_id, _Holder(*times))
        for other_id, other in holders.items():
            if other is not new and other.answered_at < new.asked_at:
                self._findings.counts["instances replaced"] += not self._fenced.get(other_id)
                self._fenced[other_id] = other
                other.replaced_in = starts
                other.replaced |= written

    def fenced(self, group: str, instance: str, member_id: str, starts: int) -> None:
        """Record that a member received FENCED_INSTANCE_ID."""
        holders = self._holders.setdefault((group, instance), {})
        holder = self._fenced[member_id] = holders.setdefault(member_id, _Holder(0.0, 0.0))
        holder.replaced_in = max(starts, holder.replaced_in)

    def is_fenced(self, member_id: str, starts: int) -> bool:
        """Return whether the broker has to reject a member after so many starts of brokers."""
        holder = self._fenced.get(member_id)
        return holder is not None and (holder.replaced or holder.replaced_in == starts)

    @property
    def static_groups(self) -> set[str]:
        """Groups with static members."""
        return {group for group, _ in self._holders}

    def loads(self, group: str, now: float) -> None:
        """Record that the coordinator is loading the members of a group."""
        self._loading_at[group] = now

    def was_loading(self, group: str, since: float) -> bool:
        """Return whether the group was being loaded at, or after, this time.

        A coordinator that is loading answers every heartbeat without an error. Source:
        `GroupCoordinatorService.heartbeat` of Apache Kafka. Times are seconds of virtual time.
        """
        return self._loading_at.get(group, -1.0) >= since
