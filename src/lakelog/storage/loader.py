"""Opening a log's directory: the segments, then leader epochs and producers.

Only the `.log` files are trusted. After a clean stop their end is found from the last index entry
on; after an unclean one they are scanned from the recovery point on. Leader epochs and producers
are read from their files if these agree with the log, and rebuilt from the log otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lakelog.base.config.keys.topics import FSYNC
from lakelog.base.config.log_config import LogConfig
from lakelog.base.events import event
from lakelog.storage import files
from lakelog.storage.checkpoint import LEADER_EPOCHS, KnownLog, MalformedCheckpoint, decode_epochs
from lakelog.storage.compaction.swap import finish_interrupted_swaps
from lakelog.storage.epochs import EpochCache
from lakelog.storage.errors import CorruptLog
from lakelog.storage.log import Log
from lakelog.storage.preparation import wait_for
from lakelog.storage.producers.limit import ProducerLimit
from lakelog.storage.producers.snapshots import ProducerSnapshots
from lakelog.storage.recovery import Bounds, recover_segment, set_aside
from lakelog.storage.segments.handles import HandleCache
from lakelog.storage.segments.scan import scan_headers
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_list import SegmentList
from lakelog.storage.segments.txn_index import TxnIndex

_logger = logging.getLogger(__name__)
EPOCH_END = 1 << 31
_OFFSET_END = 1 << 63
_INDEXES = (files.INDEX, files.TIME_INDEX, files.TXN_INDEX)


@dataclass(slots=True)
class Recovery:
    """The changes that recovery made to one log."""

    segments_scanned: int = 0
    bytes_cut: int = 0
    segments_set_aside: int = 0
    """Empty ones included."""
    reasons: list[str] = field(default_factory=list)
    from_device: bool = False
    """After a failed sync, read from the device: pages of the cache may have been lost."""
    is_torn: bool = False
    """Whether nothing was cut but the beginning of the last write."""
    is_replaced: bool = False
    """Whether another program has put other files in the place of the log's."""

    @property
    def is_whole(self) -> bool:
        """Whether all records were kept, from a page cache without failures."""
        return not (self.bytes_cut or self.reasons or self.from_device or self.is_replaced)

    @property
    def may_have_lost(self) -> bool:
        """Whether records that were acknowledged may be missing."""
        is_torn = self.is_torn and not (self.from_device or self.is_replaced)
        return not (self.is_whole or is_torn)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The facts about a log before its directory is opened."""

    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig
    folder: Path
    clean: bool
    checkpoint: KnownLog
    epoch_end: int = EPOCH_END
    """Every leader epoch in the log is below it."""
    compacted: bool = True
    """Whether it is or was compacted, so that offsets may be missing between its batches."""

    @property
    def recovery_point(self) -> int:
        return self.checkpoint.recovery_point

    @property
    def log_start_offset(self) -> int:
        return self.checkpoint.start


class LogLoader:
    """Opens logs of one data folder. `breathe` is called often in a long scan, and may end it."""

    def __init__(
        self,
        handles: HandleCache,
        *,
        now_ms: int,
        random_below: Callable[[int], int],
        producers: ProducerLimit,
        breathe: Callable[[], None],
    ) -> None:
        self._breathe = breathe
        self._handles = handles
        self._disk = handles.disk
        self._now_ms = now_ms
        self._random_below = random_below
        self._producers = producers

    def load(self, request: LoadRequest) -> tuple[Log, Recovery]:
        """Open a log and return it with the changes of its recovery.

        Raises `CorruptLog` if data that was durable is missing or wrong, or if data cannot be made
        durable in a topic with durability `fsync`; `OSError`; and what `breathe` raises.
        """
        folder, recovery = request.folder, Recovery()
        scanned: list[Segment] = []
        names = self._names(folder)
        segments = self._segments(request, names)
        # A clean stop has synced every file and written every index entry, so only the end of
        # the last segment has to be read. To scan the rest would cost seconds per GB.
        if request.clean:
            segments[-1].load_tail()
        else:
            recovery.from_device = files.SYNC_FAILED in names
            from_device = recovery.from_device or request.config.durability == FSYNC
            scanned = self._recover(segments, request, recovery, from_device)
        self._check_end(segments, request, recovery)
        if recovery.segments_set_aside:
            self._disk.sync_dir(folder)  # or a power failure restores these files
        log = self._log(request, names, segments)
        if not request.clean and request.checkpoint.aborted is None:
            # Without checksums a power failure may have changed any transaction index unnoticed.
            scanned = segments
        self._restore_producers(log, scanned)
        if request.config.durability == FSYNC:
            _make_durable(log)
        if files.SYNC_FAILED in names:
            # Only now: a start that is interrupted before must distrust the page cache again.
            files.remove_if_exists(self._disk, folder / files.SYNC_FAILED)
        return log, recovery

    def _log(self, request: LoadRequest, names: list[str], segments: list[Segment]) -> Log:
        """Return the log of these segments; its producers are not known yet."""
        # The checkpoint may be older than the last retention. Segments are removed only after the
        # start has moved, so their absence shows the newer start.
        start = max(request.log_start_offset, segments[0].base_offset)
        snapshots = ProducerSnapshots(
            self._disk,
            request.folder,
            [files.offset_of(name) or 0 for name in names if name.endswith(files.SNAPSHOT)],
        )
        return Log(
            request.topic,
            request.partition,
            request.topic_id,
            request.config,
            SegmentList(request.folder, self._handles, segments),
            self._producers.new_table(),
            snapshots,
            self._epochs(request, segments, start),
            random_below=self._random_below,
            log_start_offset=start,
            recovery_point=min(request.recovery_point, segments[-1].next_offset),
        )

    def _restore_producers(self, log: Log, scanned: list[Segment]) -> None:
        """Restore the state of the producers from the last valid snapshot and the records after it.

        The transaction indexes of the `scanned` segments are rebuilt.
        """
        # Snapshots of records that recovery cut off would give the next producers a wrong state.
        log.snapshots.remove_beyond(log.log_end_offset)
        log.rebuild_producers([segment for segment in scanned if segment in log.segments])
        log.producers.remove_expired(self._now_ms)
        log.snapshots.prune({segment.base_offset for segment in log.segments})
        # A marker may have to be written before clients are served, and must not wait for indexes
        # then.
        if log.producers.first_unstable_offset >= 0:
            _open_for_markers(log)

    def _names(self, folder: Path) -> list[str]:
        """Return the names in the folder, after completing swaps and removing leftovers.

        The folder is listed once if there are none: that is a tenth of a start of an empty log.
        """
        names = self._disk.list(folder)
        # A `.swap` file is durable and complete, so its swap is finished; a `.cleaned` file is
        # neither, and the old segments are still there. Either way one valid set of segments is
        # left.
        if any(name.endswith((files.CLEANED, files.SWAP)) for name in names):
            for name in finish_interrupted_swaps(self._disk, folder, names):
                done = folder / name
                _logger.info(
                    "%s: completed a compaction that a stop had interrupted",
                    done,
                    extra=event("compaction_completed", path=folder),
                )
            names = self._disk.list(folder)
        # A `.deleted` file waited for the end of reads, of which none survives a restart. A `.tmp`
        # file was never renamed, so nothing refers to it.
        leftovers = [name for name in names if name.endswith((files.DELETED, ".tmp"))]
        for name in leftovers:
            files.remove_if_exists(self._disk, folder / name)
        return [name for name in names if name not in leftovers] if leftovers else names

    def _segments(self, request: LoadRequest, names: list[str]) -> list[Segment]:
        # The names of files are the list of segments. A list in a file of its own could disagree
        # with them after a crash.
        bases = [files.offset_of(name) for name in names if name.endswith(files.LOG)]
        segments: list[Segment] = []
        aborted = dict(request.checkpoint.aborted or ())
        indexed = {files.offset_of(name) for name in names if name.endswith(files.TXN_INDEX)}
        for base in sorted(base for base in bases if base is not None):
            segment = self._new_segment(request, base)
            segment.find(self._disk.size(segment.path(files.LOG)))
            # Also without the file: an index that a checkpoint knows and that is missing has to be
            # rebuilt. An empty one would show aborted records to read_committed consumers.
            if base in indexed or base in aborted:
                segment.txn_index = TxnIndex(None, aborted.get(base))
            if segments:
                segments[-1].sealed = True
                # Segments are contiguous, so a sealed segment ends at the next base. Only its scan
                # or its index shows whether its file is complete.
                segments[-1].next_offset = base
            segments.append(segment)
        self._check_orphans(request, names, {segment.base_offset for segment in segments})
        if not segments:
            segments.append(self._first_segment(request))
        return segments

    def _check_orphans(self, request: LoadRequest, names: list[str], bases: set[int]) -> None:
        """Raise `CorruptLog` for an index with entries whose `.log` is gone: records are lost.

        They were durable if they were below the recovery point, or the last stop was clean.
        """
        folder = request.folder
        for name in names:
            offset = files.offset_of(name)
            if offset is None or offset in bases or not name.endswith(_INDEXES):
                continue
            durable = request.clean or offset < request.recovery_point
            # An empty index proves nothing: a roll creates it before the first batch is written.
            if durable and self._disk.size(folder / name):
                missing = folder / files.file_name(offset, files.LOG)
                raise CorruptLog(missing, 0, f"the file is missing although {name} has entries")
            files.remove_if_exists(self._disk, folder / name)

    def _first_segment(self, request: LoadRequest) -> Segment:
        """Create the first segment; a log without one is valid only if nothing was ever written."""
        if request.recovery_point > request.log_start_offset:
            # Creating an empty log here would restart the offsets, and consumers would skip new
            # records.
            missing = request.folder / files.file_name(request.log_start_offset, files.LOG)
            reason = f"there is no segment, yet offsets up to {request.recovery_point} were durable"
            raise CorruptLog(missing, 0, reason)
        return self._new_segment(request, request.log_start_offset).create()

    def _new_segment(self, request: LoadRequest, base: int) -> Segment:
        return Segment(self._handles, request.folder, base, request.config, created_ms=self._now_ms)

    def _recover(
        self,
        segments: list[Segment],
        request: LoadRequest,
        recovery: Recovery,
        from_device: bool,
    ) -> list[Segment]:
        """Scan the segments from the recovery point on and return them.

        The log ends at the first fault; later segments are set aside.
        """
        scanned, recovery_point = [], request.recovery_point
        for number, segment in enumerate(segments):
            following = segments[number + 1].base_offset if segment is not segments[-1] else None
            # Wholly below the recovery point: it was synced, and its batches are checked before
            # they are first served.
            if following is not None and following <= recovery_point:
                continue
            recovery.segments_scanned += 1
            scanned.append(segment)
            # A batch of an epoch that this partition never had is left over from another log, or
            # damaged in a way that its checksum does not cover (the epoch lies outside the CRC).
            bounds = Bounds(request.epoch_end, _OFFSET_END, request.compacted)
            if following is not None:  # its end is known: gaps cannot hide a wrong offset
                bounds = bounds._replace(offset_end=following, has_gaps=True)
            # Each later segment is scanned as well. After a power failure a segment may be whole
            # although one before it lost its end, because the kernel writes pages back in any
            # order.
            cut = recover_segment(
                segment, recovery_point, self._breathe, bounds, from_device=from_device
            )
            if cut is not None:
                recovery.bytes_cut += cut.size
                # A cut in any segment but the last removes whole batches behind it, which may have
                # been acknowledged.
                recovery.is_torn = cut.is_torn and following is None
                recovery.reasons.append(
                    f"{segment.path(files.LOG)} at {cut.position}: {cut.reason}"
                )
            # No batch is damaged, but the file is shorter than its successor's base requires.
            # Compaction never leaves such a gap: a cleaned segment keeps its last batch.
            elif following is not None and recovery_point <= segment.next_offset < following:
                reason = f"the next segment begins at {following}"
                recovery.reasons.append(f"{segment.path(files.LOG)} at its end: {reason}")
            elif following is not None:
                segment.unload()
                continue
            # Offsets must stay contiguous: records behind a lost one cannot be kept in the log.
            for later in segments[number + 1 :]:
                recovery.bytes_cut += set_aside(later)
                recovery.segments_set_aside += 1
            del segments[number + 1 :]
            # It is the last segment now, and appends continue in it.
            segment.sealed = False
            break
        return scanned

    def _check_end(self, segments: list[Segment], request: LoadRequest, recovery: Recovery) -> None:
        """Check that the log reaches its recovery point and its start.

        Neither may be lost: offsets would restart. A log without durable records may end before its
        start, which is durable earlier; it then begins again there.
        """
        last = segments[-1]
        end = last.next_offset
        durable = request.recovery_point
        # A log that ends before its durable end is damaged; that is no torn tail. If it
        # were cut here, offsets that consumers have read would be assigned again.
        if end < durable or (request.clean and end > durable > 0):
            reason = f"the log ends at offset {end}, yet {durable} was durable"
            raise CorruptLog(last.path(files.LOG), last.size, reason)
        if end < request.log_start_offset:
            # Only an unclean stop may lose records that the checkpointed start has already passed.
            if request.clean:
                reason = f"the log ends at offset {end} before its start"
                raise CorruptLog(last.path(files.LOG), last.size, reason)
            recovery.is_torn = False
            for segment in segments:
                recovery.bytes_cut += set_aside(segment)
                recovery.segments_set_aside += 1
            segments[:] = [self._new_segment(request, request.log_start_offset).create()]

    def _epochs(self, request: LoadRequest, segments: list[Segment], start: int) -> EpochCache:
        path = request.folder / LEADER_EPOCHS
        data, recorded = files.read_if_exists(self._disk, path), list(request.checkpoint.epochs)
        try:
            epochs = EpochCache(decode_epochs(data or b""))
            # The checkpoint file may be older than the log, or of a log that was truncated since. A
            # wrong entry would make a follower truncate at the wrong offset (KIP-101).
            if recorded and not _agree(epochs.entries, recorded, request.recovery_point):
                files.log_rebuild("%s differs from known-logs; rebuilding it", path)
                epochs = _rewritten(recorded)
        except MalformedCheckpoint as error:
            if segments[-1].next_offset > segments[0].base_offset:
                files.log_rebuild("%s: %s; rebuilding it", path, error)
            epochs = _rewritten(recorded)
            # The file is damaged and no checkpoint has its entries: every header is read.
            if not recorded:
                _add_epochs(epochs, segments)
        if not request.clean and epochs.entries and epochs.entries[0][1] > start:
            # The file was written after a deletion of records that no other checkpoint has.
            epochs = EpochCache(None)
            _add_epochs(epochs, segments)
        # An epoch that begins at the end has no records: a start forgets it.
        epochs.truncate_from_end(segments[-1].next_offset)
        if not request.clean:  # beyond the recovery point the log is right, not the file
            dirty = [s for s in segments if s.next_offset > request.recovery_point]
            if dirty:
                epochs.truncate_from_end(max(dirty[0].base_offset, request.recovery_point))
            _add_epochs(epochs, dirty, request.recovery_point)
        epochs.truncate_from_start(start)
        return epochs


def _rewritten(entries: list[tuple[int, int]]) -> EpochCache:
    epochs = EpochCache(None)
    for entry in entries:
        epochs.assign(*entry)
    return epochs


def _agree(
    entries: list[tuple[int, int]], recorded: list[tuple[int, int]], recovery_point: int
) -> bool:
    """Return whether entries below the recovery point agree, except for where the log starts."""
    durable = [entry for entry in entries if entry[1] < recovery_point]
    kept = recorded[-len(durable) :] if durable else []
    return bool(durable) and durable[1:] == kept[1:] and durable[0][0] == kept[0][0]


def _add_epochs(epochs: EpochCache, segments: list[Segment], start: int = 0) -> None:
    """Add the leader epochs of the batches from offset `start` on."""
    for segment in segments:
        if not segment.size:
            continue
        for _, header in scan_headers(segment.open().file, 0, segment.size):
            if header.partition_leader_epoch > epochs.latest and header.base_offset >= start:
                epochs.assign(header.partition_leader_epoch, header.base_offset)


def _open_for_markers(log: Log) -> None:
    """Load what `append_marker` needs: a start may end open transactions before the loop runs."""
    with suppress(CorruptLog, OSError):  # the append reports it
        _ = log.segments.active.index
        wait_for(partial(log.check_marker, commit=False))


def _make_durable(log: Log) -> None:
    """Flush the log: it may never have been synced, and is going to be served as committed."""
    try:
        log.flush()
    except OSError as error:
        raise CorruptLog(log.folder, 0, f"it could not be made durable: {error}") from error
