"""Leader epochs of a log and the offsets where they began (KIP-101, KIP-279).

Entries rise in both numbers. A new entry replaces all entries that begin at or after it: an
epoch in which nothing was written leaves no trace.

Source: `org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochCache:
    """The epochs of one log. `latest` is -1 as long as there is none.

    `entries`: of the checkpoint file; `None` if the file must be rewritten.
    """

    __slots__ = ("_epochs", "_saved", "_starts", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] | None = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED_EPOCH
        for epoch, start_offset in entries or ():
            self.assign(epoch, start_offset)
        self._saved = None if entries is None else self.entries

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), rising."""
        return list(zip(self._epochs, self._starts, strict=True))

    def is_behind(self, log_end_offset: int) -> bool:
        """Return whether the checkpoint file lacks epochs of the log's records.

        An epoch that begins at the log's end has no records: a start forgets it.
        """
        if self._saved is None:
            return True
        # The file may have entries at the log's end, which a start drops; they make no difference.
        saved = [entry for entry in self._saved if entry[1] < log_end_offset]
        keep = bisect_left(self._starts, log_end_offset)
        return self.entries[:keep] != saved

    def note_saved(self) -> None:
        """Take note that the checkpoint file has been written."""
        self._saved = self.entries

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`, unless it is not above the latest."""
        if epoch <= self.latest:
            return
        keep = bisect_left(self._starts, start_offset)
        # An epoch that began here or later has no records: its leader wrote nothing.
        del self._epochs[keep:], self._starts[keep:]
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch
        assert len(self._epochs) == len(self._starts)

    def epoch_of(self, offset: int) -> int:
        """Return the epoch in which the record at `offset` was written; -1 when unknown."""
        entry = bisect_right(self._starts, offset) - 1
        return self._epochs[entry] if entry >= 0 else UNDEFINED_EPOCH

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch at or below `epoch` and its end offset (exclusive; KIP-101).

        Return (-1, -1) if it is unknown.
        """
        # The newest epoch has not ended: it reaches to the log's end.
        if epoch == self.latest and epoch >= 0:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if epoch < 0 or above == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        # For an epoch that this log never had, the end of the largest one below it: both logs agree
        # at most up to there. A caller with yet another epoch asks again (KIP-279).
        return self._epochs[above - 1] if above else epoch, self._starts[above]

    def truncate_from_end(self, offset: int) -> None:
        """Forget the epochs that begin at or after `offset` (KIP-101)."""
        keep = bisect_left(self._starts, offset)
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def truncate_from_start(self, offset: int) -> None:
        """Forget epochs that ended at or before `offset`; the epoch there now begins there."""
        entry = bisect_right(self._starts, offset) - 1
        if entry >= 0 and (entry or self._starts[0] < offset):
            del self._epochs[:entry], self._starts[:entry]
            # The epoch of the first record stays known, as followers compare it with theirs even if
            # nothing else of that epoch is left.
            self._starts[0] = offset
