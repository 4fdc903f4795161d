"""Refusals of JoinGroup, with reasons that the response has no field for."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.errors import ErrorCode

SUBSCRIPTION_TOO_LARGE = (
    "its subscription alone exceeds lakelog.group.subscriptions.max.bytes; subscribe to fewer "
    "topics or by a regular expression, or raise that limit"
)


class JoinRefusal(NamedTuple):
    """One refused JoinGroup; `member_id` is empty for a new member."""

    group_id: str
    member_id: str
    client_id: str
    client_host: str
    code: ErrorCode
    reason: str
    """The cause, and what to do about it."""


def session_timeout_reason(session_timeout_ms: int, shortest: int, longest: int) -> str:
    """Return the reason of INVALID_SESSION_TIMEOUT; the limits are milliseconds."""
    return (
        f"its session.timeout.ms={session_timeout_ms} is not between {shortest} and {longest}; "
        "change it, or group.min.session.timeout.ms and group.max.session.timeout.ms of the broker"
    )
