"""What every assignor is given and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Member:
    """A member of a consumer group: its id, its static id if it has one, what it subscribed to."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None


Assignment = dict[str, dict[str, list[int]]]
"""Member id to topic to partitions, every member present."""


def in_order(members: Sequence[Member]) -> list[Member]:
    """Static members first by their static id, then the others by member id.

    Kafka's order (KIP-345), which gives a static member the same partitions after a restart.
    """
    return sorted(members, key=_order)


def _order(member: Member) -> tuple[bool, str]:
    dynamic = member.instance_id is None
    return dynamic, member.member_id if member.instance_id is None else member.instance_id
