"""What is known of a log before its directory is opened."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.uuids import ZERO_UUID


class KnownLog(NamedTuple):
    """One log at some moment. Offsets are -1 where they are not known."""

    topic_id: bytes
    recovery_point: int
    start: int = 0
    high_watermark: int = -1
    cleaned: int = -1
    epochs: tuple[tuple[int, int], ...] = ()
    aborted: tuple[tuple[int, int], ...] | None = ()
    """Bases and checksums of the transaction indexes below the recovery point; `None` if unknown.
    """

    def is_of(self, topic_id: bytes) -> bool:
        """Without a topic id it may be of any."""
        return self.topic_id in (ZERO_UUID, topic_id)

    def as_of(self, topic_id: bytes) -> KnownLog:
        """The same of a log of this topic; nothing counts that was known of an older namesake's."""
        if self.is_of(topic_id):
            return self._replace(topic_id=topic_id)
        return KnownLog(topic_id, 0, 0)
