"""Reconciles a member with its target assignment: it revokes partitions, then it gets others.

A member has to revoke first, and keeps its epoch until it no longer reports the revoked partitions.
Then it gets the target's epoch and the free partitions of its target; it waits for the others. So
no partition ever has two owners, and no member waits for the whole group.

Sources: KIP-848, and the behaviour of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.consumer.member import ConsumerMember, Epochs, MemberState, Target

Owned = Mapping[bytes, Set[int]]
"""Partitions that a member reports as its own, by topic id."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The target of one member.

    Attributes:
        epoch: epoch of the target assignment.
        target: partitions by topic id.
        subscribed: ids of the topics that the member subscribes to; it gets no others.
        is_free: returns whether no member owns a partition.
    """

    epoch: int
    target: Target
    subscribed: Set[bytes]
    is_free: Callable[[bytes, int], bool]


def reconcile(
    member: ConsumerMember, goal: Goal, owned: Owned | None, *, subscription_changed: bool
) -> ConsumerMember:
    """Return the member after its next step, or unchanged if it has to wait.

    Args:
        owned: partitions that the member reports, None if it reports none in this request.

    Raises `KafkaError(FENCED_MEMBER_EPOCH)` for a state that a newer version wrote, unless the
    member owns nothing.
    """
    if member.state is MemberState.UNKNOWN and (owned is None or any(owned.values())):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member's state was written by a newer version: it must abandon its partitions and "
            "rejoin.",
        )
    has_arrived = member.is_reconciled(goal.epoch)
    is_giving_up = member.state is MemberState.UNREVOKED_PARTITIONS and _has(owned, member.pending)
    if has_arrived or is_giving_up:
        return _drop_unsubscribed(member, goal, owned) if subscription_changed else member
    return _advance(member, goal, owned)


def _advance(member: ConsumerMember, goal: Goal, owned: Owned | None) -> ConsumerMember:
    assert goal.epoch >= member.member_epoch, "a member's epoch went back"
    target = {topic: goal.target[topic] for topic in goal.target if topic in goal.subscribed}
    kept = _select(member.assigned, lambda topic, partition: partition in target.get(topic, ()))
    given_up = _select(
        member.assigned, lambda topic, partition: partition not in target.get(topic, ())
    )
    # While the member may still read these partitions, they stay in its record as pending: no other
    # member gets them, even after a restart of the coordinator.
    if given_up and _has(owned, given_up):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.member_epoch,
            assigned=kept,
            pending=given_up,
        )
    missing = [
        (topic, partition)
        for topic, partitions in target.items()
        for partition in partitions
        if partition not in kept.get(topic, ())
    ]
    # A partition that this member has given up and is to get again is its own, not another's.
    free = [
        (topic, partition)
        for topic, partition in missing
        if goal.is_free(topic, partition) or partition in member.pending.get(topic, ())
    ]
    waits = len(free) < len(missing)
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        member_epoch=goal.epoch,
        previous_epoch=member.member_epoch,
        assigned=_with(kept, free, goal.epoch),
        pending={},
    )


def _drop_unsubscribed(member: ConsumerMember, goal: Goal, owned: Owned | None) -> ConsumerMember:
    """Revoke partitions of topics that the member no longer subscribes to.

    The next target assignment may be computed much later (KIP-1263).
    """
    kept = _select(member.assigned, lambda topic, _: topic in goal.subscribed)
    dropped = _select(member.assigned, lambda topic, _: topic not in goal.subscribed)
    if not dropped:
        return member
    pending = {topic: dict(epochs) for topic, epochs in member.pending.items()}
    for topic, epochs in dropped.items():
        pending.setdefault(topic, {}).update(epochs)
    changed = replace(member, previous_epoch=member.member_epoch, assigned=kept)
    if _has(owned, pending):
        return replace(changed, state=MemberState.UNREVOKED_PARTITIONS, pending=pending)
    return changed


def _has(owned: Owned | None, partitions: Epochs) -> bool:
    """Return whether the member may own any of the partitions; without a report it may own all."""
    if owned is None:
        return True
    return any(
        not owned[topic].isdisjoint(epochs)
        for topic, epochs in partitions.items()
        if topic in owned
    )


def _select(epochs: Epochs, accepts: Callable[[bytes, int], bool]) -> dict[bytes, dict[int, int]]:
    selected = {
        topic: {
            partition: epoch for partition, epoch in partitions.items() if accepts(topic, partition)
        }
        for topic, partitions in epochs.items()
    }
    return {topic: partitions for topic, partitions in selected.items() if partitions}


def _with(
    epochs: dict[bytes, dict[int, int]], given: Iterable[tuple[bytes, int]], epoch: int
) -> Epochs:
    for topic, partition in given:
        epochs.setdefault(topic, {})[partition] = epoch
    return epochs
