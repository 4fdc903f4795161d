"""The high watermark of one partition: the only place that decides what is committed.

With a single replica a record is committed once it is appended, or with `durability=fsync` once it
is durable: the high watermark follows the log end offset, or the recovery point. It never goes
back, whatever the settings become: consumers have read what is below it.
"""

from __future__ import annotations

from lakelog.base.config.keys.topics import FSYNC
from lakelog.storage.log import Log


class HighWatermark:
    """The end of the committed records, exclusive."""

    __slots__ = ("_log", "by_flush", "offset")

    def __init__(self, log: Log) -> None:
        """What the log holds when it is opened was recovered, and is committed."""
        self._log = log
        self.offset = log.log_end_offset
        self.by_flush = False
        """Whether a flush commits records, and not their append."""
        self.use_config()

    def use_config(self) -> None:
        """Adopt the log's settings; `advance` then commits what no longer has to wait."""
        self.by_flush = self._log.config.durability == FSYNC

    def advance(self) -> bool:
        """Commit what an append or a flush allows; return whether the high watermark moved."""
        log = self._log
        end = log.recovery_point if self.by_flush else log.log_end_offset
        if end <= self.offset:
            return False
        assert end <= log.log_end_offset
        self.offset = end
        return True
