"""Replaces segments by cleaned segments, safely against a crash.

1. The cleaned files exist under `.cleaned` names. After a crash they are removed.
2. All are renamed to `.swap`, durably. A crash before the last rename undoes the swap; a later one
   completes it.
3. The old files are renamed to `.deleted`, to be removed later; the `.swap` files get their final
   names, the log first. After a crash `finish_interrupted_swaps` completes the swap at the start.

A reader of an old file continues to read it: its descriptor stays open.

Source: `LocalLog.replaceSegments` and `LogLoader` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from lakelog.base.errors import is_shortage, lacks_descriptors
from lakelog.runtime.api import Disk
from lakelog.storage import files
from lakelog.storage.compaction.job import CleanedGroup
from lakelog.storage.errors import CorruptLog
from lakelog.storage.log import Log
from lakelog.storage.segments.scan import scan_headers
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.txn_index import TxnIndex


class SwapPutOff(Exception):  # noqa: N818 - an event
    """A swap was undone because of a lack of space or descriptors; the log is as before."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class SwapJob:
    """The step that waits for the device; `run` may be in a thread."""

    __slots__ = ("_disk", "folder", "group")

    def __init__(self, disk: Disk, folder: Path, group: CleanedGroup) -> None:
        self._disk = disk
        self.folder = folder
        self.group = group

    def run(self) -> None:
        """Block until the swap is durable, so that a start would complete it.

        Raises `SwapPutOff`, `OSError`, and `FileNotFoundError` if the log's folder was renamed.
        """
        try:
            for suffix in self.group.suffixes:
                path = self.folder / files.file_name(self.group.base_offset, suffix)
                self._disk.rename(_with(path, files.CLEANED), _with(path, files.SWAP))
        except OSError as error:
            if not is_shortage(error):
                raise
            self._put_off(error)
        try:
            # Before an old file loses its name: a power failure may otherwise leave neither old nor
            # new.
            self._disk.sync_dir(self.folder)
        except OSError as error:
            if not lacks_descriptors(error):  # a failed sync: the device may have lost the renames
                raise
            self._put_off(error)

    def _put_off(self, error: OSError) -> NoReturn:
        undo_swap(self._disk, self.folder, self.group)
        raise SwapPutOff(error) from error


def begin_swap(log: Log, group: CleanedGroup) -> SwapJob:
    """Begin a swap for which `can_swap` is true. Until `end_swap` the log deletes no segment."""
    assert can_swap(log, group)
    # Retention between the two steps would remove segments that the swap is about to replace.
    log.segments.swapping = True
    return SwapJob(log.segments.disk, log.folder, group)


def can_swap(log: Log, group: CleanedGroup) -> bool:
    """Return whether all cleaned segments are still in the log, and no swap is in progress.

    Retention or a truncation may have removed some while the helper worked.
    """
    return _position(log, group) is not None and not log.segments.swapping


def _position(log: Log, group: CleanedGroup) -> int | None:
    bases = [segment.base_offset for segment in log.segments]
    if group.base_offset not in bases:
        return None
    first = bases.index(group.base_offset)
    end = first + len(group.sources)
    whole = tuple(bases[first:end]) == group.sources
    # The end counts as well: a truncation and a roll may have given the last source segment another
    # end under the same base.
    return first if whole and bases[end : end + 1] == [group.end_offset] else None


def undo_swap(disk: Disk, folder: Path, group: CleanedGroup) -> None:
    """Remove the files of an incomplete swap. After an `OSError` the next start removes them.

    The `.log` is renamed to `.cleaned` first and removed last, so that a start after a kill removes
    the rest. A power failure may restore all files; the start then completes the swap, which is
    harmless, as the records are the same.
    """
    log = folder / files.file_name(group.base_offset, files.LOG)
    # While a `.swap` log exists, a start completes the swap; as `.cleaned` it undoes it.
    if disk.exists(_with(log, files.SWAP)):
        disk.rename(_with(log, files.SWAP), _with(log, files.CLEANED))
    for suffix in group.suffixes:
        path = folder / files.file_name(group.base_offset, suffix)
        files.remove_if_exists(disk, _with(path, files.SWAP))
        if suffix != files.LOG:
            files.remove_if_exists(disk, _with(path, files.CLEANED))
    files.remove_if_exists(disk, _with(log, files.CLEANED))


def finish_swap(log: Log, group: CleanedGroup, now_ms: int) -> None:
    """Do the last step, on the loop. `now_ms`: milliseconds since the epoch.

    Raises `SwapPutOff` with nothing changed. After an `OSError` only a restart repairs the log.
    """
    first = _position(log, group)
    assert first is not None, "`begin_swap` keeps the old segments in the log"
    assert group.base_offset < group.end_offset, "a cleaned segment keeps its last batch"
    disk, old = log.segments.disk, log.segments[first : first + len(group.sources)]
    # The time of the oldest source: retention and `segment.ms` must not begin again with each
    # compaction.
    created = old[0].created_ms
    due_ms = now_ms + log.config.file_delete_delay_ms
    new = Segment(
        log.segments.handles, log.folder, group.base_offset, log.config, created_ms=created
    )
    new.size, new.next_offset, new.sealed = group.size, group.end_offset, True
    if files.TXN_INDEX in group.suffixes:
        # Read when it is first used. The helper wrote the file in another process.
        new.txn_index = TxnIndex(None)
    try:
        log.replace_segments(old, new, due_ms)
    except OSError as error:
        if not is_shortage(error):
            raise
        undo_swap(disk, log.folder, group)
        raise SwapPutOff(error) from error
    for suffix in group.suffixes:
        # The log comes first: see step 3 above.
        disk.rename(_with(new.path(suffix), files.SWAP), new.path(suffix))


def end_swap(log: Log) -> None:
    """End a swap, whether it succeeded or not."""
    log.segments.swapping = False


def finish_interrupted_swaps(disk: Disk, folder: Path, names: Sequence[str]) -> list[str]:
    """Complete or undo swaps that a crash interrupted; return the names of completed logs.

    `names`: all files of the folder. Raises `CorruptLog` for a damaged `.swap` file, and `OSError`.
    """
    cleaned = [name for name in names if name.endswith(files.CLEANED)]
    swaps = [name for name in names if name.endswith(files.SWAP)]
    if not cleaned and not swaps:
        return []
    # A remaining `.cleaned` file shows that its group was not renamed completely. The `.swap` files
    # from its base on are removed, and the groups before it are completed.
    begun = min((_base(name) for name in cleaned), default=None)
    valid = [name for name in swaps if begun is None or _base(name) < begun]
    for name in (*(name for name in swaps if name not in valid), *cleaned):
        disk.remove(folder / name)
    logs = [name for name in valid if name.endswith(files.LOG + files.SWAP)]
    for name in logs:
        _remove_replaced(disk, folder, names, _base(name), _end_of(disk, folder / name))
    # The log first: while its `.swap` exists, a start removes all other files of its offsets.
    for name in sorted(valid, key=lambda name: not name.endswith(files.LOG + files.SWAP)):
        disk.rename(folder / name, folder / name.removesuffix(files.SWAP))
    # Before any new record is appended to the folder's log.
    disk.sync_dir(folder)
    return [name.removesuffix(files.SWAP) for name in logs]


def _remove_replaced(disk: Disk, folder: Path, names: Sequence[str], base: int, end: int) -> None:
    """Remove the files that a swapped segment replaces; the logs last, from the first on."""
    replaced = [
        name
        for name in names
        if name.endswith(files.SEGMENT_SUFFIXES) and base <= (files.offset_of(name) or 0) < end
    ]
    for name in sorted(replaced, key=lambda name: name.endswith(files.LOG)):
        disk.remove(folder / name)


def _end_of(disk: Disk, path: Path) -> int:
    end = _base(path.name)
    with closing(disk.open(path)) as file:
        for _, header in scan_headers(file, 0, file.size()):
            end = header.last_offset + 1
    # A cleaned segment keeps its last batch, so an empty file is damage. Its end would be its base,
    # and the files that it replaces would stay beside it.
    if end == _base(path.name):
        raise CorruptLog(path, 0, "a cleaned segment has no batch")
    return end


def _base(name: str) -> int:
    return files.offset_of(name) or 0


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
