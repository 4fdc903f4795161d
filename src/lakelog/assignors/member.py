"""The arguments and the result of assignors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Member:
    """A member of a group with its subscription; `instance_id` is the id of a static member."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None


Assignment = dict[str, dict[str, list[int]]]
"""The partitions by member id and topic; it contains every member."""


def in_order(members: Sequence[Member]) -> list[Member]:
    """Return static members by their static ids, then the other members by member id.

    This is Kafka's order (KIP-345): a static member gets the same partitions after a restart.
    """
    return sorted(members, key=_order)


def _order(member: Member) -> tuple[bool, str]:
    dynamic = member.instance_id is None
    return dynamic, member.member_id if member.instance_id is None else member.instance_id
