"""Subscription by regular expression, with RE2 and its syntax.

RE2 matches in time linear in the length of the name, for any expression. So no member can block the
broker with an expression, as would be possible with `re`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError


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
