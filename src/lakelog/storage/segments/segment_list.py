"""The segments of one log, and what happens to whole files: begin, cut, replace, delete.

Segments are contiguous: each ends where the next one begins, unless its file is damaged. Only the
last one, the active segment, grows; there always is one. Where the log starts within its first
segment is known to `log.Log` alone.

Files of segments that have left the log are renamed to `.deleted` and removed after a delay. A
reader that has such a file open continues to read it. The next start removes the files that are
left.

Source: `LocalLog` and `LogSegments` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import is_shortage
from lakelog.runtime.api import Disk, File
from lakelog.storage.files import DELETED, SEGMENT_SUFFIXES, file_name, remove_if_exists
from lakelog.storage.segments.handles import HandleCache
from lakelog.storage.segments.segment import Segment

_GENERATION_MAX = 128

BatchPosition = tuple[Segment, int, int | None]
"""A batch: its segment, its position in the segment's file, and its size in bytes if known."""


class KnownBatches:
    """Places by base offset, in two generations.

    Dropping the older generation is cheap and never drops the newest places.
    """

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: dict[int, BatchPosition] = {}
        self._older: dict[int, BatchPosition] = {}

    def note(self, base_offset: int, location: BatchPosition) -> None:
        """Remember the place of the batch with this base offset."""
        newer = self._newer
        if len(newer) >= _GENERATION_MAX:
            # Two generations bound the memory without a clock or an order of use.
            self._older = newer
            newer = self._newer = {}
        newer[base_offset] = location

    def find(self, base_offset: int) -> BatchPosition | None:
        """Return the place of the batch, or `None` if it is not known."""
        return self._newer.get(base_offset) or self._older.get(base_offset)

    def forget(self, base_offset: int) -> None:
        """Forget the batch with this base offset, if it is known."""
        self._newer.pop(base_offset, None)
        self._older.pop(base_offset, None)

    def clear(self) -> None:
        """Forget all places; called whenever files are cut off or replaced."""
        self._newer = {}
        self._older = {}


class RemovedFiles:
    """Renamed files of one log, in the order of their removal from it."""

    __slots__ = ("_disk", "_due")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: list[tuple[int, Path]] = []
        """When each file is due (wall clock, ms), and its present path."""

    def __len__(self) -> int:
        return len(self._due)

    def add(self, segment: Segment, due_ms: int) -> None:
        """Rename the files of a closed segment. Raises `OSError`.

        The `.log` is renamed last: a start ignores index files without one, but takes a `.log`
        without index files for a segment of the log. `due_ms`: wall clock, milliseconds since the
        epoch. Files that do not exist are skipped.
        """
        for suffix in reversed(SEGMENT_SUFFIXES):
            path = segment.path(suffix)
            target = path.with_name(path.name + DELETED)
            try:
                self._disk.rename(path, target)
            except FileNotFoundError:
                continue
            self._due.append((due_ms, target))

    def restore(self, first: int) -> None:
        """Rename the files from number `first` on to their old names. Raises `OSError`.

        Newest first, so that a failure leaves the oldest ones renamed.
        """
        assert 0 <= first <= len(self._due)
        while len(self._due) > first:
            path = self._due[-1][1]
            self._disk.rename(path, path.with_suffix(""))
            self._due.pop()

    def remove_due(self, now_ms: float) -> None:
        """Remove the files that are due at `now_ms`. Raises `OSError`.

        A file that cannot be removed stays due. `now_ms`: wall clock.
        """
        for _, path in [entry for entry in self._due if entry[0] <= now_ms]:
            remove_if_exists(self._disk, path)
        self._due = [entry for entry in self._due if entry[0] > now_ms]


_SOUGHT_MAX = 8
"""Places in `sought`: one read may need six, and other readers of the log may come in between."""

SoughtBatch = tuple[int, int]
"""A segment's base offset, and the position in its file that a search reads."""


class SegmentList(Sequence[Segment]):
    """The segments by offset. Every change of the list drops known batches that it may move."""

    __slots__ = (
        "_bases",
        "_segments",
        "active",
        "folder",
        "generation",
        "handles",
        "has_aborted",
        "known_batches",
        "removed",
        "sought",
        "swapping",
        "unsynced",
    )

    def __init__(
        self,
        folder: Path,
        handles: HandleCache,
        segments: Sequence[Segment],
        *,
        created: bool = False,
    ) -> None:
        """`created`: the folder is new, so that its own name is not durable either."""
        assert segments, "a log has an active segment"
        self.folder = folder
        self.handles = handles
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.generation = 0
        """Rises with each truncation: jobs that began before it prove nothing any more."""
        self.has_aborted = False
        """Whether any segment has the marker of an aborted transaction."""
        self.known_batches = KnownBatches()
        self.removed = RemovedFiles(handles.disk)
        self.sought: tuple[SoughtBatch, ...] = ()
        """The places that searches have last read ahead; see `reading.seeking`."""
        self.swapping = False
        """Whether a compaction is replacing segments; until it ends, no segment is deleted."""
        self.unsynced: set[Path] = {folder, folder.parent} if created else set()
        """Small files, and folders with new names, that the next flush has to sync."""
        self._check()

    def _check(self) -> None:
        bases = self._bases
        assert self.active is self._segments[-1]
        assert len(bases) == len(self._segments)
        for segment, base, following in zip(self._segments, bases, bases[1:], strict=False):
            assert segment.base_offset == base
            assert base < following
            assert segment.sealed, "only the last segment grows"

    @overload
    def __getitem__(self, number: int) -> Segment: ...

    @overload
    def __getitem__(self, number: slice) -> list[Segment]: ...

    def __getitem__(self, number: int | slice) -> Segment | list[Segment]:
        return self._segments[number]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __contains__(self, segment: object) -> bool:
        return segment in self._segments

    @property
    def disk(self) -> Disk:
        return self.handles.disk

    @property
    def size(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size for segment in self._segments)

    def reads(self, file: File) -> bool:
        """Return whether this is the open file of a segment."""
        handles = (segment.handle for segment in self._segments)
        return any(handle is not None and handle.file is file for handle in handles)

    def number_of(self, offset: int) -> int:
        """Return the number of the last segment that begins at or before `offset`, else 0."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def count_from(self, offset: int) -> int:
        """Return how many segments begin at or before `offset`."""
        return bisect_right(self._bases, offset)

    def note_sought(self, target: SoughtBatch) -> None:
        """Remember that `target` was just read ahead, so that no search waits for it again."""
        self.sought = (*self.sought[1 - _SOUGHT_MAX :], target)

    def begin(self, base: int, config: LogConfig, *, created_ms: int, jitter_ms: int) -> Segment:
        """Append an empty active segment at `base`, where the sealed one before it ends.

        Raises `OSError`; the caller then calls `take_back`. Times are in milliseconds.
        """
        assert self.active.sealed
        assert base > self.active.base_offset
        segment = Segment(
            self.handles,
            self.folder,
            base,
            config,
            created_ms=created_ms,
            jitter_ms=jitter_ms,
        ).create()
        self._segments.append(segment)
        self._bases.append(base)
        self.active = segment
        self.known_batches.clear()
        self.unsynced.add(self.folder)
        return segment

    def take_back(self, base: int) -> None:
        """Remove the files of a segment that could not begin at `base`. Raises `OSError`.

        The active segment continues. If a file remained, the next start would truncate the log at
        `base`, although the active segment may have grown beyond it.
        """
        # It had been sealed for the roll that failed. It may have been given the last time entry
        # already, which does no harm.
        self.active.sealed = False
        self.unsynced.add(self.folder)
        for suffix in SEGMENT_SUFFIXES:
            path = self.folder / file_name(base, suffix)
            remove_if_exists(self.disk, path)

    def cut(self, keep: int, last: Segment) -> None:
        """Keep the first `keep` segments, and in the last of them what its copy `last` has.

        Raises `OSError`. The deletions are durable before this returns. Otherwise a power failure
        could restore an old file beside new records with the same offsets.
        """
        assert 0 < keep <= len(self._segments)
        if keep < len(self._segments):
            # Newest first: a kill in between leaves a log without a gap.
            for segment in reversed(self._segments[keep:]):
                self._delete(segment, 0)
            self.disk.sync_dir(self.folder)
            del self._segments[keep:], self._bases[keep:]
        self.active = segment = self._segments[-1]
        segment.truncate(last)
        self.known_batches.clear()

    def restart_at(self, offset: int, config: LogConfig) -> None:
        """Delete every segment and create an empty one at `offset`. Raises `OSError`."""
        created_ms = self._segments[0].created_ms
        for segment in reversed(self._segments):
            self._delete(segment, 0)
        # No old file may return after a power failure and continue the new segment.
        self.disk.sync_dir(self.folder)
        segment = Segment(self.handles, self.folder, offset, config, created_ms=created_ms)
        self.active = segment.create()
        self._segments, self._bases = [segment], [offset]
        self.known_batches.clear()
        self.unsynced.add(self.folder)

    def replace(self, old: Sequence[Segment], new: Segment, due_ms: int) -> None:
        """Replace a run of sealed segments by `new`, whose files get their names afterwards.

        due_ms: removal of the old files, milliseconds since the epoch. Raises `OSError`; nothing
        has changed if it is a shortage of space or descriptors.
        """
        assert old[-1] is not self.active
        assert new.base_offset == old[0].base_offset
        first, removed = self._segments.index(old[0]), len(self.removed)
        try:
            for segment in old:
                self._delete(segment, due_ms)
        except OSError as error:
            if is_shortage(error):
                # The old files have their names again, so the swap can be undone.
                self.removed.restore(removed)
            raise
        # All old files have lost their names: from here on, a restart completes the swap.
        self._segments[first : first + len(old)] = [new]
        self._bases = [segment.base_offset for segment in self._segments]
        self.note_aborted()
        self.known_batches.clear()
        self.unsynced.add(self.folder)
        self._check()

    def delete_first(self, due_ms: int) -> None:
        """Delete the oldest segment; its files are removed at `due_ms`. Raises `OSError`.

        The time is in milliseconds since the epoch.
        """
        assert len(self._segments) > 1, "the active segment stays"
        self._delete(self._segments[0], due_ms)
        del self._segments[0], self._bases[0]

    def _delete(self, segment: Segment, due_ms: int) -> None:
        self.handles.close(segment)
        self.removed.add(segment, due_ms)

    def note_aborted(self) -> None:
        """Update `has_aborted` after segments or markers were added or removed."""
        self.has_aborted = any(segment.txn_index is not None for segment in self._segments)

    def finish(self) -> None:
        """Write all pending index entries before a close. Raises `OSError` or `CorruptLog`."""
        for segment in self._segments:
            segment.finish()

    def abandon(self) -> None:
        """Close all files without writing anything."""
        for segment in self._segments:
            self.handles.close(segment)

    def move_to(self, folder: Path) -> None:
        """Take note that the log's folder has been renamed."""
        self.folder = folder
        for segment in self._segments:
            segment.folder = folder
