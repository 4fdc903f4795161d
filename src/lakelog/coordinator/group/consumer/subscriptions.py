"""What the members of a consumer group subscribe to, seen against the topics there are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from struct import Struct as Format

from lakelog.coordinator.group.consumer.draft import Draft
from lakelog.coordinator.group.consumer.group import ConsumerGroup, ResolvedRegex
from lakelog.coordinator.group.consumer.member import ConsumerMember
from lakelog.coordinator.group.consumer.regex import check_regex, matching
from lakelog.coordinator.group.topics import Topics
from lakelog.coordinator.shard import Now

_COUNT = Format(">i")

REGEX_REFRESH_MIN_MS = 10_000
"""Expressions are not looked at again before, however many topics come and go."""


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Differs when the topics or their partitions do; 0 for no topics.

    Kafka keeps an XXH3 there. Only equality is ever looked at, so a log that another broker wrote
    costs each group one rebalance, not its state.
    """
    digest = hashlib.blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            found = True
            digest.update(topic_id + _COUNT.pack(topics.partition_count(name)))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


def subscribed_ids(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> set[bytes]:
    """Ids of the topics there are."""
    ids = (topics.topic_id(name) for name in group.topics_of(member))
    return {topic_id for topic_id in ids if topic_id is not None}


class Regexes:
    """Keeps the topics that match a group's regular expressions.

    Kafka looks for them in the background and tells the members later; here it is done at once,
    which spares every join by expression a heartbeat interval.
    """

    def __init__(self, topics: Topics, refresh_interval_ms: int) -> None:
        self._topics = topics
        self._refresh_interval_ms = refresh_interval_ms
        self.new_topics_version = 0
        """Of the metadata in which the newest topic came into being."""

    def update(self, draft: Draft, now: Now, old_regex: str, new_regex: str) -> bool:
        """Follows the change of one member's expression, and looks at all again if it is time.

        Returns whether the group's topics may have changed. Raises INVALID_REGULAR_EXPRESSION.
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
        if 0 <= age_ms <= REGEX_REFRESH_MIN_MS:
            return False
        is_recent = 0 <= age_ms <= self._refresh_interval_ms
        return resolved.version < self.new_topics_version or not is_recent

    def _resolve(self, regex: str, now: Now) -> ResolvedRegex:
        topics = matching(regex, self._topics.names())
        return ResolvedRegex(topics, self._topics.version(), now.wall_ms)


def forget_unused(draft: Draft) -> None:
    """Deletes expressions that no member has any more."""
    for regex in [each for each in draft.group.regexes if each not in draft.group.regex_counts]:
        draft.put_regex(regex, None)
