"""The steps of a consumer group's decisions: subscribe, assign, reconcile, remove members.

Each step works on a draft with the records of the steps before. Sources: KIP-848, KIP-1101 (hash of
the topics), KIP-1263 (assignment interval), and the behaviour of Apache Kafka 4.4.

A subscription by regular expression has the syntax of RE2, which matches in time linear in the
length of the name, for any expression. So no member can block the broker with an expression, as
would be possible with `re`.

When a member reconciles with its target assignment, it has to revoke first, and keeps its epoch
until it no longer reports the revoked partitions. Then it gets the target's epoch and the free
partitions of its target; it waits for the others. So no partition ever has two owners, and no
member waits for the whole group.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from struct import Struct as Format
from typing import Any

from lakelog.assignors import SERVER_ASSIGNORS, Assignment, Member
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.config import ConsumerConfig, Topics
from lakelog.coordinator.group.consumer.group import ConsumerGroup, Draft, ResolvedRegex
from lakelog.coordinator.group.consumer.member import ConsumerMember, Epochs, MemberState, Target
from lakelog.coordinator.shard import Now

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


def check_regex(text: str) -> None:
    """Raise `KafkaError(INVALID_REGULAR_EXPRESSION)` unless RE2 can compile the expression."""
    re2, options = _re2()
    try:
        re2.compile(text, options)
    except re2.error as error:
        described = error.args[0] if error.args else ""
        if isinstance(described, bytes):
            described = described.decode(errors="replace")
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{text}` is not a valid regular expression: {described}.",
        ) from error


def matching(text: str, topics: Iterable[str]) -> frozenset[str]:
    """Return the topics whose whole name matches; none for a malformed expression.

    The set has one expression: the methods of a single expression build spans and take ten times as
    long.
    """
    re2, options = _re2()
    pattern = re2.Set.FullMatchSet(options)
    try:
        pattern.Add(text)
    except re2.error:
        return frozenset()
    pattern.Compile()
    return frozenset(topic for topic in topics if pattern.Match(topic))


def _re2() -> tuple[Any, Any]:
    import re2  # most brokers never need it, and its import takes time

    options = re2.Options()
    options.log_errors = False
    return re2, options


_COUNT = Format(">i")

REGEX_REFRESH_MIN_MS = 10_000
"""Shortest time between two searches for matching topics, however often topics change."""


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return a hash of topics and their partition counts; 0 if no topic exists (KIP-1101).

    Kafka uses XXH3. Hashes are compared for equality only, so a log that another broker wrote costs
    each group one rebalance, not its state.
    """
    digest = hashlib.blake2b(digest_size=8)
    has_topics = False
    for name in sorted(names):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            has_topics = True
            digest.update(topic_id + _COUNT.pack(topics.partition_count(name)))
    return int.from_bytes(digest.digest(), "big", signed=True) if has_topics else 0


def subscribed_ids(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> set[bytes]:
    """Return the ids of existing topics that a member subscribes to."""
    ids = (topics.topic_id(name) for name in group.topics_of(member))
    return {topic_id for topic_id in ids if topic_id is not None}


class Regexes:
    """The topics that match the regular expressions of groups.

    Kafka resolves an expression in the background and assigns later. Here the heartbeat resolves
    it, which saves a member that joins by expression one heartbeat interval.
    """

    def __init__(self, topics: Topics, refresh_interval_ms: int) -> None:
        self._topics = topics
        self._refresh_interval_ms = refresh_interval_ms
        self.new_topics_version = 0
        """Version of the metadata in which the newest topic was created."""

    def update(self, draft: Draft, now: Now, old_regex: str, new_regex: str) -> bool:
        """Apply the change of a member's expression, and resolve all expressions that are due.

        Returns whether the group's topics may have changed. Raises
        `KafkaError(INVALID_REGULAR_EXPRESSION)` for an expression that RE2 cannot compile.
        """
        changed = old_regex != new_regex
        if changed and new_regex and new_regex not in draft.group.regexes:
            check_regex(new_regex)
            draft.put_regex(new_regex, self._resolve(new_regex, now))
        forget_unused(draft)
        return self._refresh(draft, now) or changed

    def _refresh(self, draft: Draft, now: Now) -> bool:
        changed = False
        for regex, resolved in list(draft.group.regexes.items()):
            if self._is_due(resolved, now):
                again = self._resolve(regex, now)
                changed = changed or again.topics != resolved.topics
                draft.put_regex(regex, again)
        return changed

    def _is_due(self, resolved: ResolvedRegex, now: Now) -> bool:
        age_ms = now.wall_ms - resolved.timestamp_ms
        # A search visits all topics: topics that are created one by one must not cause one each.
        if 0 <= age_ms <= REGEX_REFRESH_MIN_MS:
            return False
        is_recent = 0 <= age_ms <= self._refresh_interval_ms
        return resolved.version < self.new_topics_version or not is_recent

    def _resolve(self, regex: str, now: Now) -> ResolvedRegex:
        topics = matching(regex, self._topics.names())
        return ResolvedRegex(topics, self._topics.version(), now.wall_ms)


def forget_unused(draft: Draft) -> None:
    """Delete expressions that no member has any more."""
    for regex in [
        pattern for pattern in draft.group.regexes if pattern not in draft.group.regex_counts
    ]:
        draft.put_regex(regex, None)


class ConsumerRebalancer:
    """The steps for the groups of one shard.

    Args:
        interval_ms: returns the shortest time between two target assignments of a group.
    """

    def __init__(
        self, config: ConsumerConfig, topics: Topics, interval_ms: Callable[[str], int]
    ) -> None:
        self._config = config
        self._topics = topics
        self._interval_ms = interval_ms
        self.regexes = Regexes(topics, config.regex_refresh_ms)

    @property
    def default_assignor(self) -> str:
        """The assignor of groups whose members name none."""
        return self._config.assignors[0]

    def subscribe(self, draft: Draft, now: Now, old: ConsumerMember, new: ConsumerMember) -> bool:
        """Write a member's subscription; raise the group epoch if it or the topics have changed.

        Returns whether the member's subscription has changed. Raises
        `KafkaError(INVALID_REGULAR_EXPRESSION)` for an expression that RE2 cannot compile.
        """
        # A count of the votes visits all members, so only a changed vote causes one.
        votes = new.assignor != old.assignor
        before = draft.group.preferred_assignor(self.default_assignor) if votes else None
        if new != old or new.member_id not in draft.group.members:
            draft.put_member(new)
        renamed = new.topics != old.topics
        matched = self.regexes.update(draft, now, old.regex, new.regex)
        reassigned = votes and draft.group.preferred_assignor(self.default_assignor) != before
        changed = renamed or matched or reassigned
        if changed or draft.live.refresh_due:
            draft.live.refresh_due = False
            self._follow_topics(draft, bump=changed)
        return renamed or new.regex != old.regex

    def _follow_topics(self, draft: Draft, *, bump: bool) -> None:
        group = draft.group
        topics_hash = metadata_hash(group.subscribed_topics(), self._topics)
        if bump or topics_hash != group.metadata_hash:
            draft.put_epoch(group.epoch + 1, topics_hash)
        if group.has_partition_metadata:
            draft.delete_partition_metadata()

    def assign(self, draft: Draft, now: Now) -> None:
        """Compute the target assignment of the group's epoch, unless the last one is recent.

        The interval bounds the cost of groups whose members join one by one (KIP-1263).
        """
        group = draft.group
        if not self.may_assign(group, now):
            return
        for member_id, target in self._targets(group).items():
            if target != group.target.get(member_id):
                draft.put_target(member_id, target)
        draft.put_target_epoch(group.epoch, now.wall_ms)

    def may_assign(self, group: ConsumerGroup, now: Now) -> bool:
        """Return whether a new target assignment is needed, and the last one is not recent."""
        age_ms = now.wall_ms - group.assignment_timestamp_ms
        # A clock that was set back must not stop assignments: an age below 0 is not recent.
        is_recent = 0 <= age_ms < self._interval_ms(group.group_id)
        is_recent = is_recent and group.assignment_timestamp_ms != 0
        return group.epoch > group.assignment_epoch and not is_recent

    def _targets(self, group: ConsumerGroup) -> dict[str, Target]:
        members = [
            Member(member.member_id, group.topics_of(member), member.instance_id)
            for member in group.members.values()
        ]
        ids = {name: self._topics.topic_id(name) for name in group.subscribed_topics()}
        topic_ids = {name: topic_id for name, topic_id in ids.items() if topic_id is not None}
        names = {topic_id: name for name, topic_id in topic_ids.items()}
        counts = {name: self._topics.partition_count(name) for name in topic_ids}
        current: Assignment = {
            member_id: {
                names[topic_id]: sorted(target[topic_id])
                for topic_id in target
                if topic_id in names
            }
            for member_id, target in group.target.items()
        }
        assignor = SERVER_ASSIGNORS[group.preferred_assignor(self.default_assignor)]
        shares = assignor(members, counts, current)
        assert _are_disjoint(shares), "a partition is assigned to two members"
        return {
            member_id: {
                topic_ids[name]: frozenset(partitions) for name, partitions in share.items()
            }
            for member_id, share in shares.items()
        }

    def reconcile(
        self, draft: Draft, member: ConsumerMember, owned: Owned | None, *, changed: bool
    ) -> ConsumerMember:
        """Move a member one step towards its target; `changed` is the result of `subscribe`."""
        group = draft.group
        if not changed and member.is_reconciled(group.assignment_epoch):
            return member
        goal = Goal(
            epoch=group.assignment_epoch,
            target=group.target.get(member.member_id, {}),
            subscribed=subscribed_ids(group, member, self._topics),
            is_free=group.is_free,
        )
        updated = reconcile(member, goal, owned, subscription_changed=changed)
        if updated != member:
            draft.put_assignment(updated)
        return updated

    def replace(self, draft: Draft, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Replace a static member by its new process, with its assignment and target.

        The group epoch is not raised, so that a restart causes no rebalance (KIP-345).
        """
        new = old.renamed(member_id)
        target = draft.group.target.get(old.member_id, {})
        draft.remove_member(old.member_id)
        draft.put_member(new)
        draft.put_target(member_id, target)
        draft.put_assignment(new)
        return new

    def remove(self, draft: Draft, member_ids: Iterable[str]) -> None:
        """Remove members, and regular expressions that no other member has."""
        for member_id in member_ids:
            draft.remove_member(member_id)
        forget_unused(draft)
        topics_hash = metadata_hash(draft.group.subscribed_topics(), self._topics)
        draft.put_epoch(draft.group.epoch + 1, topics_hash)
        if not draft.group.members:
            # No member is left whose partitions could be in use: the next one is assigned at once.
            draft.put_target_epoch(draft.group.epoch, 0)


def _are_disjoint(assignment: Assignment) -> bool:
    assigned: Counter[str] = Counter()
    distinct: defaultdict[str, set[int]] = defaultdict(set)
    for share in assignment.values():
        for topic, partitions in share.items():
            assigned[topic] += len(partitions)
            distinct[topic].update(partitions)
    return all(assigned[topic] == len(distinct[topic]) for topic in assigned)
