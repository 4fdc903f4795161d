"""The subscriptions of a consumer group's members, resolved against the existing topics.

A subscription by regular expression has the syntax of RE2, which matches in time linear in the
length of the name, for any expression. So no member can block the broker with an expression, as
would be possible with `re`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from struct import Struct as Format
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.config import Topics
from lakelog.coordinator.group.consumer.draft import Draft
from lakelog.coordinator.group.consumer.group import ConsumerGroup, ResolvedRegex
from lakelog.coordinator.group.consumer.member import ConsumerMember
from lakelog.coordinator.shard import Now


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
