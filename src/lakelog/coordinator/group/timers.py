"""The timers of a shard of groups."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class TimerKind(Enum):
    JOIN = auto()
    """The join phase of a group is over."""
    SYNC = auto()
    """Whoever has not asked for its assignment is dropped."""
    SESSION = auto()
    """A member has not been heard of."""
    PENDING = auto()
    """A member id was given out and not used."""
    EXPIRY = auto()
    """Time to look for expired offsets."""
    REVOKE = auto()
    """A member of a consumer group has not given up what it was to."""
    REJOIN = auto()
    """A classic member of a consumer group has not joined its new epoch."""
    RESYNC = auto()
    """A classic member of a consumer group has not asked for its assignment."""
    QUEUE = auto()
    """Requests that wait for a change of their group may be decided."""


class TimerKey(NamedTuple):
    kind: TimerKind
    group_id: str = ""
    member_id: str = ""
