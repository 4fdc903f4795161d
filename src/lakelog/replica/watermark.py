"""The high watermark of one partition: this module alone decides which records are committed.

A leader that is the only in-sync replica commits a record by appending it, or with
`durability=fsync` by making it durable: the high watermark follows the log end offset, or the
recovery point. With other replicas in sync, and in a follower, it stays at the last known value.

It never falls, even when settings and roles change, because consumers have read the records below
it.
"""

from __future__ import annotations

from lakelog.base.config.keys.topics import FSYNC
from lakelog.replica.role import Role
from lakelog.storage.log import Log


class HighWatermark:
    """The end of the committed records, exclusive."""

    __slots__ = ("_is_sole", "_log", "by_flush", "offset")

    def __init__(self, log: Log, known: int = 0) -> None:
        """`known` is the high watermark of the last checkpoint, which recovery may have cut off."""
        self._log = log
        self.offset = max(log.log_start_offset, min(known, log.log_end_offset))
        self.by_flush = False
        """Whether records are committed by a flush instead of their append."""
        self._is_sole = False
        self.use_config()

    def use_config(self) -> None:
        """Adopt the log's settings; the next `advance` commits records that need no flush now."""
        self.by_flush = self._log.config.durability == FSYNC

    def use_role(self, role: Role) -> None:
        """Adopt the role; the next `advance` commits the records that it allows to commit."""
        self._is_sole = role.is_leader and role.isr_size == 1

    @property
    def by_append(self) -> bool:
        """Whether the append of a record commits it."""
        return self._is_sole and not self.by_flush

    @property
    def written(self) -> int:
        """The end of the records that this replica has written as durably as configured."""
        return self._log.flushes.recovery_point if self.by_flush else self._log.log_end_offset

    def advance(self) -> bool:
        """Commit appended or flushed records; return whether the high watermark rose."""
        if not self._is_sole:
            return False
        log = self._log
        end = log.flushes.recovery_point if self.by_flush else log.log_end_offset
        # After a change to `fsync` the recovery point may be below offsets that were served.
        if end <= self.offset:
            return False
        assert end <= log.log_end_offset, "a record is committed only after it is in the log"
        self.offset = end
        return True
