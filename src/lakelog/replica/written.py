"""How much has been written to a log since it was opened, for those who watch."""

from __future__ import annotations

from lakelog.storage.log import Log


class Written:
    """Follows from offsets and sizes, so that an append has nothing to count."""

    __slots__ = ("_log", "_markers", "_markers_bytes", "_rolled_bytes", "_segment", "_start_offset")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._start_offset = log.log_end_offset
        self._segment = log.segments.active
        self._rolled_bytes = -log.segments.active.size
        self._markers = self._markers_bytes = 0

    @property
    def records(self) -> int:
        """The markers of transactions are not counted."""
        return self._log.log_end_offset - self._start_offset - self._markers

    @property
    def bytes(self) -> int:
        """Of the batches that held those records, as they were stored."""
        return self.all_bytes - self._markers_bytes

    @property
    def all_bytes(self) -> int:
        """With the markers'."""
        active = self._log.segments.active
        newer = active.size if active is not self._segment else 0
        return self._rolled_bytes + self._segment.size + newer

    def note_roll(self) -> bool:
        """Whether a segment was closed since the last call."""
        if self._log.segments.active is self._segment:
            return False
        self._rolled_bytes += self._segment.size
        self._segment = self._log.segments.active
        return True

    def note_marker(self, size: int) -> None:
        """`size` bytes of what was written are a marker."""
        self._markers += 1
        self._markers_bytes += size
