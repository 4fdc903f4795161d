"""The timers of a shard of transactions."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class TimerKind(Enum):
    """The event at which a timer fires."""

    TIMEOUT = "timeout"
    """A transaction has timed out, or a failed step of a transactional id is due for a retry."""
    EXPIRY = "expiry"
    """The check for unused transactional ids is due."""


class TimerKey(NamedTuple):
    """One timer; `EXPIRY` is a timer of the whole shard."""

    kind: TimerKind
    transactional_id: str = ""
