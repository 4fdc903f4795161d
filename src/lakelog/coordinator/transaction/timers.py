"""What a shard of transactions waits for."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class TimerKind(Enum):
    TIMEOUT = "timeout"
    EXPIRY = "expiry"


class TimerKey(NamedTuple):
    kind: TimerKind
    transactional_id: str = ""
