"""The high watermark of one partition: this module alone decides which records are committed.

A leader that is the only in-sync replica commits a record by appending it, or with
`durability=fsync` by making it durable: the high watermark follows the log end offset, or the
recovery point. With other replicas in sync it is the smallest end of their logs, which a follower
with `durability=fsync` reports after its own flush. A follower knows the high watermark from the
leader's responses.

In sync counts everything that the controller may have in the ISR: the members of the last known ISR
and of a proposal that it has not answered yet (KIP-497).

It never falls, even when settings and roles change, because consumers have read the records below
it. The one exception is a follower whose leader has lost committed records (`cut`).
"""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.base.config.keys.topics import FSYNC
from lakelog.replica.followers import Followers
from lakelog.replica.role import NO_ROLE, Role
from lakelog.storage.log import Log


class HighWatermark:
    """The end of the committed records, exclusive."""

    __slots__ = (
        "_followers",
        "_in_sync",
        "_is_leader",
        "_is_short",
        "_is_sole",
        "_log",
        "_reported",
        "_role",
        "by_flush",
        "offset",
    )

    def __init__(self, log: Log, followers: Followers, saved: int = 0) -> None:
        """`saved` is the high watermark of the last checkpoint, which recovery may have cut off."""
        self._log = log
        self._followers = followers
        # The checkpoint may be older than a DeleteRecords, or newer than a log that lost its end
        # with a power failure.
        self.offset = max(log.log_start_offset, min(saved, log.log_end_offset))
        self.by_flush = False
        """Whether records are committed by a flush instead of their append."""
        self._reported = 0
        """The end of the log when `by_flush` began: earlier reports were not durable."""
        self._role = NO_ROLE
        self._is_leader = self._is_short = self._is_sole = False
        self._in_sync: frozenset[int] = frozenset()
        """The followers that have to have a record before it is committed."""
        self.use_config()

    def use_config(self) -> None:
        """Apply the log's settings; the next `advance` commits records that need no flush now."""
        by_flush = self._log.config.durability == FSYNC
        if by_flush and not self.by_flush:
            self._reported = self._log.log_end_offset
        self.by_flush = by_flush
        self._compare_isr()

    def use_role(self, role: Role, proposed: Iterable[int] = ()) -> None:
        """Apply the role and a proposed ISR; the next `advance` commits accordingly."""
        self._role = role
        self._is_leader = role.is_leader
        # The maximal ISR (KIP-497): while a proposal is under way, the controller may have applied
        # it or not. A record counts as committed only if it is so in both cases. A proposed shrink
        # therefore releases nothing before its answer.
        self._in_sync = frozenset({*role.isr, *proposed}.intersection(role.followers))
        assert not proposed or role.is_leader, "only a leader proposes an ISR"
        self._compare_isr()

    def _compare_isr(self) -> None:
        """Commit nothing while the ISR is smaller than `min.insync.replicas` (KIP-966).

        Too few replicas would have the records, and a later election could lose them.
        """
        role, replicas = self._role, 1 + len(self._role.followers)
        self._is_short = len(role.isr) < min(self._log.config.min_insync_replicas, replicas)
        # Computed here and not in `advance`, which runs for every append.
        self._is_sole = self._is_leader and not self._in_sync and not self._is_short

    @property
    def is_short(self) -> bool:
        """Whether too few replicas are in sync to commit anything."""
        return self._is_short

    @property
    def by_append(self) -> bool:
        """Whether the append of a record commits it."""
        return self._is_sole and not self.by_flush

    @property
    def written(self) -> int:
        """The end of the records that this replica has written as durably as configured."""
        return self._log.flushes.recovery_point if self.by_flush else self._log.log_end_offset

    @property
    def is_written(self) -> bool:
        """Whether the whole log is written as durably as configured.

        Only then a follower may report the end of its log to the leader, which commits by it.
        """
        return self.written >= self._log.log_end_offset

    @property
    def is_durable(self) -> bool:
        """Whether every record that this replica has ever counted or reported is on the device."""
        return self.by_flush and self._log.flushes.recovery_point >= self._reported

    def advance(self) -> bool:
        """Commit appended or flushed records; return whether the high watermark rose."""
        log = self._log
        end = log.flushes.recovery_point if self.by_flush else log.log_end_offset
        # One comparison for a leader without followers in sync, which is every append of a single
        # broker.
        if not self._is_sole:
            if not self._is_leader or self._is_short:
                return False
            # An unknown position of a follower is -1, so nothing is committed before its first
            # fetch of this leader epoch.
            end = min(end, self._followers.end(self._in_sync))
        # After a change to `fsync` the recovery point may be below offsets that were served.
        if end <= self.offset:
            return False
        assert end <= log.log_end_offset, "a record is committed only after it is in the log"
        self.offset = end
        return True

    def follow(self, leader_offset: int) -> bool:
        """Apply the leader's high watermark as far as this log reaches; return whether it rose."""
        assert not self._is_leader, "a leader decides itself"
        # The leader's watermark may be ahead of this log: records that are not here yet cannot be
        # served if this replica becomes the leader.
        end = min(leader_offset, self._log.log_end_offset)
        if end <= self.offset:
            return False
        self.offset = end
        return True

    def cut(self) -> None:
        """Follow a truncation of the log to its leader's.

        Only here it may fall: the leader has lost committed records, as after an unclean election,
        or this replica copies a damaged log again.
        """
        assert not self._is_leader
        self._reported = min(self._reported, self._log.log_end_offset)
        self.offset = max(self._log.log_start_offset, min(self.offset, self._log.log_end_offset))
