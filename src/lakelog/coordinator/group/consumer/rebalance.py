"""The steps of a consumer group's decisions: subscribe, assign, reconcile, remove members.

Each step works on a draft with the records of the steps before. Sources: KIP-848, KIP-1101 (hash of
the topics), KIP-1263 (assignment interval), and the behaviour of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from lakelog.assignors import SERVER_ASSIGNORS, Assignment, Member
from lakelog.coordinator.group.config import ConsumerConfig, Topics
from lakelog.coordinator.group.consumer.draft import Draft
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.consumer.member import ConsumerMember, Target
from lakelog.coordinator.group.consumer.reconcile import Goal, Owned, reconcile
from lakelog.coordinator.group.consumer.subscriptions import (
    Regexes,
    forget_unused,
    metadata_hash,
    subscribed_ids,
)
from lakelog.coordinator.shard import Now


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
