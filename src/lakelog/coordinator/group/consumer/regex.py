"""Subscription by regular expression, in RE2's syntax and with RE2 itself.

RE2 takes time that is linear in the length of the name, whatever the expression: one member cannot
stop the broker with one of its own making. `re` could.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError


def check_regex(text: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION."""
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
    """The topics whose whole name matches; none for an expression that RE2 does not take.

    Through a set of one: a single expression's own methods build spans, and take ten times as long.
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
    import re2  # not before it is needed: most brokers never need it

    options = re2.Options()
    options.log_errors = False
    return re2, options
