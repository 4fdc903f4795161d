"""The checkpoint of a log, which is known before its directory is opened."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.uuids import ZERO_UUID


class LogFiles(NamedTuple):
    """Files of a log that no copy of it has."""

    metadata: str
    """File id of `partition.metadata`, which the broker writes once."""
    base: int
    """Base offset of the newest segment."""
    inode: int
    """Inode of that segment's `.log` file."""


class KnownLog(NamedTuple):
    """One log when the checkpoint was written. Unknown offsets are -1."""

    topic_id: bytes
    recovery_point: int
    start: int = 0
    high_watermark: int = -1
    cleaned: int = -1
    epochs: tuple[tuple[int, int], ...] = ()
    aborted: tuple[tuple[int, int], ...] | None = ()
    """Bases and checksums of the transaction indexes below the recovery point; `None` if unknown.
    """
    files: LogFiles | None = None
    """`None` if unknown, as in a checkpoint of an older version."""

    def is_of(self, topic_id: bytes) -> bool:
        """Return whether it is of this topic, or of an unknown one."""
        return self.topic_id in (ZERO_UUID, topic_id)

    def as_of(self, topic_id: bytes) -> KnownLog:
        """Return it for a log of this topic; a blank one if an older topic had the name."""
        if self.is_of(topic_id):
            return self._replace(topic_id=topic_id)
        return KnownLog(topic_id, 0, 0)
