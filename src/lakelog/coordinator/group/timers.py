"""The timers of a shard of groups."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class TimerKind(Enum):
    """The event at which a timer fires."""

    JOIN = auto()
    """The join phase of a group ends."""
    SYNC = auto()
    """Members that have not sent SyncGroup are removed."""
    SESSION = auto()
    """A member's session times out."""
    PENDING = auto()
    """A pending member id expires."""
    EXPIRY = auto()
    """The check for expired offsets is due."""
    REVOKE = auto()
    """A member of a consumer group has not revoked partitions in time."""
    REJOIN = auto()
    """A classic member of a consumer group has not rejoined in time."""
    RESYNC = auto()
    """A classic member of a consumer group has not sent SyncGroup in time."""
    QUEUE = auto()
    """Requests that wait for a change of their group may be decided."""


class TimerKey(NamedTuple):
    """One timer of a shard, a group or a member."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""
