"""The limits of one connection."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.server.connections.request_memory import RequestMemory
from lakelog.server.connections.request_turns import RequestTurns


class Limits(NamedTuple):
    """`memory` and `turns` are shared by all connections of a broker."""

    frame_size_max: int
    """Bytes of a request, which are checked before it is buffered."""
    memory: RequestMemory
    turns: RequestTurns
