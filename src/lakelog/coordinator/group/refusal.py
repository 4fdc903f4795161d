"""A refused JoinGroup: all that its response has no field for."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.errors import ErrorCode

SAYS_TOO_MUCH = (
    "its subscription alone exceeds lakelog.group.subscriptions.max.bytes; subscribe to fewer "
    "topics or by a regular expression, or raise that limit"
)


class JoinRefusal(NamedTuple):
    """`member_id` is empty for a new member."""

    group_id: str
    member_id: str
    client_id: str
    client_host: str
    code: ErrorCode
    reason: str
    """In plain words, with what to do about it."""
