"""What is known of a log before its directory is opened."""

from __future__ import annotations

from typing import NamedTuple


class KnownLog(NamedTuple):
    """One log at some moment. Offsets are -1 where they are not known."""

    topic_id: bytes
    recovery_point: int
    start: int = 0
    high_watermark: int = -1
    cleaned: int = -1
    epochs: tuple[tuple[int, int], ...] = ()
    aborted: tuple[tuple[int, int], ...] = ()
