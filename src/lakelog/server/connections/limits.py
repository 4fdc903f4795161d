"""The limits of one connection."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.server.connections.request_memory import RequestMemory
from lakelog.server.connections.request_turns import RequestTurns
from lakelog.server.connections.shared_limit import SharedLimit


class Limits(NamedTuple):
    """All but the first are shared by all connections of a broker."""

    frame_size_max: int
    """Bytes of a request, which are checked before it is buffered."""
    memory: RequestMemory
    unread: SharedLimit
    turns: RequestTurns
