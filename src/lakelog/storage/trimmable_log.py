"""What is taken from a log: old segments from its start (retention), or all from an offset on."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.shortage import is_shortage
from lakelog.storage.preparation import wait_for
from lakelog.storage.readable_log import ReadableLog
from lakelog.storage.reading.seeking import check_append
from lakelog.storage.reading.transactions import replay
from lakelog.storage.retention import count_deletable
from lakelog.storage.segments.segment import Segment

T = TypeVar("T")


def _at_once(ask: Callable[[], T]) -> T:
    return ask()


class TrimmableLog(ReadableLog):
    """Offsets are of records, times in milliseconds."""

    __slots__ = ()

    def delete_old_segments(
        self,
        now_ms: int,
        high_watermark: int | None = None,
        *,
        at_once: bool = False,
        may_wait: bool = True,
    ) -> int:
        """Applies retention and returns how many segments went; call it every few minutes.

        Their files are renamed now and removed by a later call, after `file.delete.delay.ms`, or by
        the next one that is to remove them `at_once`. An `OSError` leaves some of them, below the
        log's start, to the next call. Raises `NotReady` if it may not wait for an index to be
        loaded.
        """
        self._remove_doomed(math.inf if at_once else now_ms)
        if self.swapping:
            return 0
        committed = self.log_end_offset if high_watermark is None else high_watermark
        ask = wait_for if may_wait else _at_once
        count = ask(partial(count_deletable, self, now_ms, committed))
        if not count:
            return 0
        if count == len(self.segments):
            ask(partial(check_append, self))  # a roll writes the indexes
        if count == len(self.segments) and not self._roll_to_retain(now_ms):
            count -= 1
        start = self.segments[count].base_offset
        self.advance_log_start(start)
        self.snapshots.remove_before(start)
        for _ in range(count):
            self._delete_segment(self.segments[0], now_ms + self.config.file_delete_delay_ms)
            del self.segments[0], self._bases[0]
        return count

    def _roll_to_retain(self, now_ms: int) -> bool:
        """Return whether the active segment may go too; without space only older ones go."""
        try:
            self.roll(now_ms)
        except OSError as error:
            if len(self.segments) == 1 or not is_shortage(error):
                raise
            return False
        self.handles.disk.sync_dir(self.folder)
        return True

    def advance_log_start(self, offset: int) -> None:
        """Hides everything before `offset`; whole segments go with the next retention run."""
        if not offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the log cannot start at {offset}: it ends at {self.log_end_offset}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)

    def truncate_to(self, offset: int) -> None:
        """Cuts off the batch that holds `offset` and all after it; a follower's duty (KIP-101)."""
        if offset >= self.log_end_offset:
            return
        keep = bisect_right(self._bases, offset)
        end = self.segments[keep - 1].end_before(offset) if keep else offset
        self.truncations += 1
        self.log_start_offset = min(self.log_start_offset, end)
        self._stable_point = min(self._stable_point, end)
        if end < self.recovery_point:
            self.recovery_point = end
            if self.before_truncate is not None:
                self.before_truncate()
        if keep:
            self._cut_segments(keep, end)
        else:
            self._restart_at(end)
        self.log_end_offset = end
        self._known.clear()
        self.leader_epochs.truncate_from_end(end)
        self.snapshots.remove_beyond(end)
        segment = self.active_segment
        self.rebuild_producers([segment] if segment.txn_index is not None else [])

    def rebuild_producers(self, reindexed: Sequence[Segment] = ()) -> None:
        """Makes the producers' state from the newest snapshot and the log after it.

        The transaction indexes of `reindexed` segments are rebuilt on the way.
        """
        table = self.producers
        before = min((segment.base_offset for segment in reindexed), default=self.log_end_offset)
        start, entries = self.snapshots.newest(before)
        table.load(entries)
        for segment in self.segments:
            aborted = replay(table, segment, start)
            if segment in reindexed:
                segment.replace_aborted(aborted)
        table.end_offset = self.log_end_offset
        self.has_aborted = any(segment.txn_index is not None for segment in self.segments)
