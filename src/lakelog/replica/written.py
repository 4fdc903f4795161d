"""Records and bytes written to a log since it was opened, for metrics.

They are computed from offsets and sizes of segments, so that an append counts nothing.
"""

from __future__ import annotations

from lakelog.storage.log import Log


class WriteCounts:
    """The counts of one log."""

    __slots__ = ("_log", "_markers", "_markers_bytes", "_rolled_bytes", "_start_offset", "segment")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._start_offset = log.log_end_offset
        self.segment = log.segments.active
        """The active segment at the last `note_roll`."""
        self._rolled_bytes = -log.segments.active.size
        self._markers = self._markers_bytes = 0

    @property
    def records(self) -> int:
        """Number of written records, without transaction markers."""
        return self._log.log_end_offset - self._start_offset - self._markers

    @property
    def bytes(self) -> int:
        """Stored size of the batches of these records."""
        return self.all_bytes - self._markers_bytes

    @property
    def all_bytes(self) -> int:
        """Stored size of all batches, with transaction markers."""
        active = self._log.segments.active
        newer = active.size if active is not self.segment else 0
        return self._rolled_bytes + self.segment.size + newer

    def note_roll(self) -> bool:
        """Return whether a segment was closed since the last call."""
        if self._log.segments.active is self.segment:
            return False
        self._rolled_bytes += self.segment.size
        self.segment = self._log.segments.active
        return True

    def note_cut(self, records: int, all_bytes: int) -> None:
        """Keep the counts before a truncation of the log: they never fall, as counters may not."""
        active = self._log.segments.active
        self.segment, self._rolled_bytes = active, all_bytes - active.size
        self._start_offset = self._log.log_end_offset - records - self._markers

    def note_marker(self, size: int) -> None:
        """Exclude a marker of `size` bytes from `records` and `bytes`."""
        assert 0 < size <= self.all_bytes
        self._markers += 1
        self._markers_bytes += size
