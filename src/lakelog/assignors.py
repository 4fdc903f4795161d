"""Assignment of partitions to the members of a group: plain functions for client and coordinator.

In the classic protocol the leader of a group computes the assignment with one of `ASSIGNORS`; in
the consumer protocol (KIP-848) the coordinator does, with one of `SERVER_ASSIGNORS`. Topics without
a count do not exist and are ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
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


def assign_range(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """Divide each topic into ranges of consecutive partitions.

    Topics with the same number of partitions are divided in the same way, so that a member gets the
    same partitions of each, as joins require. The result equals that of Kafka's `RangeAssignor`
    without racks.
    """
    assignment: Assignment = {member.member_id: {} for member in members}
    ordered = in_order(members)
    for topic, count in sorted(partition_counts.items()):
        subscribers = [member for member in ordered if topic in member.topics]
        if not subscribers:
            continue
        share, extra = divmod(count, len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            end = start + share + (index < extra)
            if end > start:
                assignment[member.member_id][topic] = list(range(start, end))
            start = end
    return assignment


def assign_roundrobin(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """Have the members take turns for the partitions of all topics.

    With several topics this is more even than ranges, and less stable. The result equals that of
    Kafka's `RoundRobinAssignor`.
    """
    assignment: Assignment = {member.member_id: {} for member in members}
    ordered = in_order(members)
    subscribed = frozenset[str]().union(*(member.topics for member in members))
    next_index = 0
    for topic in sorted(subscribed & partition_counts.keys()):
        for partition in range(partition_counts[topic]):
            # This ends: each topic here has a subscriber.
            while topic not in ordered[next_index % len(ordered)].topics:
                next_index += 1
            member = ordered[next_index % len(ordered)]
            assignment[member.member_id].setdefault(topic, []).append(partition)
            next_index += 1
    return assignment


# The uniform assignor

_Partition = tuple[str, int]
_Shares = dict[str, set[_Partition]]


def assign_uniform(
    members: Sequence[Member], partition_counts: Mapping[str, int], current: Assignment
) -> Assignment:
    """Assign equal numbers of partitions to all members, with as few moves as possible.

    When all members have the same subscription, their numbers of partitions differ by at most one.
    With different subscriptions, no partition can move to a member that has at least two fewer. The
    members can get other partitions than from Kafka's `uniform`, whose result depends on the order
    of a hash table.

    Args:
        current: the current assignment, which may contain removed members and topics.
    """
    ordered = in_order(members)
    topics = {member.member_id: member.topics.intersection(partition_counts) for member in ordered}
    subscribed = sorted(frozenset[str]().union(*topics.values()))
    everything = {(topic, p) for topic in subscribed for p in range(partition_counts[topic])}
    shares: _Shares = {}
    free = set(everything)
    for member_id, own in topics.items():
        held = {
            (topic, partition)
            for topic, partitions in current.get(member_id, {}).items()
            if topic in own
            for partition in partitions
        }
        # A partition that `current` has twice goes to the first member only.
        shares[member_id] = held & free
        free -= held
    if len(set(topics.values())) <= 1:
        _share_alike(shares, free, len(everything))
    else:
        _share_by_subscription(shares, free, topics)
    assert not shares or sum(map(len, shares.values())) == len(everything), "each partition once"
    return {member_id: _by_topic(share) for member_id, share in shares.items()}


def _by_topic(share: set[_Partition]) -> dict[str, list[int]]:
    result: dict[str, list[int]] = {}
    for topic, partition in sorted(share):
        result.setdefault(topic, []).append(partition)
    return result


def _share_alike(shares: _Shares, free: set[_Partition], total: int) -> None:
    """The members with most partitions get the remainder, so that the fewest partitions move."""
    if not shares:
        return
    quota, extra = divmod(total, len(shares))
    quotas = {
        member_id: quota + (rank < extra)
        for rank, member_id in enumerate(sorted(shares, key=lambda member: -len(shares[member])))
    }
    for member_id, share in shares.items():
        surplus = sorted(share)[quotas[member_id] :]
        share.difference_update(surplus)
        free.update(surplus)
    below_quota = deque(member for member in shares if len(shares[member]) < quotas[member])
    for partition in sorted(free):
        member_id = below_quota.popleft()
        shares[member_id].add(partition)
        if len(shares[member_id]) < quotas[member_id]:
            below_quota.append(member_id)
    assert not below_quota, "the quotas add up to the number of partitions"


def _share_by_subscription(
    shares: _Shares, free: set[_Partition], topics: Mapping[str, frozenset[str]]
) -> None:
    readers: dict[str, list[str]] = {}
    for member_id, own in topics.items():
        for topic in own:
            readers.setdefault(topic, []).append(member_id)
    # Topics with few readers first, because their partitions have the least choice.
    for topic, partition in sorted(free, key=lambda pair: (len(readers[pair[0]]), pair)):
        least = min(readers[topic], key=lambda member: len(shares[member]))
        shares[least].add((topic, partition))
    shared = sorted(topic for topic in readers if len(readers[topic]) > 1)
    while any(_balance(topic, readers[topic], shares) for topic in shared):
        pass


def _balance(topic: str, readers: list[str], shares: _Shares) -> bool:
    """Move partitions of one topic to members with at least two fewer; return whether any moved.

    The loop ends, because each move brings two numbers closer together and no numbers apart.
    """
    owned = {member: sorted(p for p in shares[member] if p[0] == topic) for member in readers}
    moved = False
    while True:
        owners = [member for member in readers if owned[member]]
        most = max(owners, key=lambda member: len(shares[member]), default=None)
        least = min(readers, key=lambda member: len(shares[member]))
        if most is None or len(shares[most]) - len(shares[least]) < 2:
            return moved
        partition = owned[most].pop()
        owned[least].append(partition)
        shares[most].discard(partition)
        shares[least].add(partition)
        moved = True


Assignor = Callable[[Sequence[Member], Mapping[str, int]], Assignment]
ServerAssignor = Callable[[Sequence[Member], Mapping[str, int], Assignment], Assignment]
"""The last argument is the current assignment."""

ASSIGNORS: dict[str, Assignor] = {"range": assign_range, "roundrobin": assign_roundrobin}
"""The assignors of the classic protocol, by their names in JoinGroup."""

SERVER_ASSIGNORS: dict[str, ServerAssignor] = {
    "uniform": assign_uniform,
    "range": lambda members, partition_counts, current: assign_range(members, partition_counts),
}
"""The assignors of the consumer protocol, by their names in ConsumerGroupHeartbeat."""
