"""The high watermark of one partition: this module alone decides which records are committed.

With a single replica a record is committed once it is appended, or with `durability=fsync` once it
is durable: the high watermark follows the log end offset, or the recovery point. It never falls,
even when the settings change, because consumers have read the records below it.
"""

from __future__ import annotations

from lakelog.base.config.keys.topics import FSYNC
from lakelog.storage.log import Log


class HighWatermark:
    """The end of the committed records, exclusive."""

    __slots__ = ("_log", "by_flush", "offset")

    def __init__(self, log: Log) -> None:
        """Commit all records of the opened log: recovery has kept only intact ones."""
        self._log = log
        self.offset = log.log_end_offset
        self.by_flush = False
        """Whether records are committed by a flush instead of their append."""
        self.use_config()

    def use_config(self) -> None:
        """Adopt the log's settings; the next `advance` commits records that need no flush now."""
        self.by_flush = self._log.config.durability == FSYNC

    def advance(self) -> bool:
        """Commit appended or flushed records; return whether the high watermark rose."""
        log = self._log
        end = log.recovery_point if self.by_flush else log.log_end_offset
        if end <= self.offset:
            return False
        assert end <= log.log_end_offset, "a record is committed only after it is in the log"
        self.offset = end
        return True
