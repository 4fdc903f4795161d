"""The segments of one log and what happens to whole files: rolling, flushing, deleting, closing.

`Log` adds what the bytes mean. The log has one owner and is never called from two threads; only
the `run` of jobs leaves the loop (`FlushJob`, `Preparation`).

Source: `LocalLog` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

from lakelog.base.config.keys.topics import FSYNC
from lakelog.base.config.log_config import LogConfig
from lakelog.base.shortage import is_shortage, lacks_descriptors
from lakelog.storage.checkpoint import LEADER_EPOCHS, encode_epochs
from lakelog.storage.epochs import EpochCache
from lakelog.storage.files import remove_if_exists, replace
from lakelog.storage.flush import FlushJob
from lakelog.storage.names import DELETED, PARTITION_METADATA, SEGMENT_SUFFIXES
from lakelog.storage.producers.snapshots import ProducerSnapshots
from lakelog.storage.producers.state import ProducerStateTable
from lakelog.storage.reading.seeking import Place
from lakelog.storage.run import takes_runs
from lakelog.storage.segments.handles import HandleCache
from lakelog.storage.segments.known_batches import KnownBatches
from lakelog.storage.segments.segment import Segment


class LocalLog:
    """State and files. Offsets are of records, sizes in bytes, times in milliseconds."""

    __slots__ = (
        "_bases",
        "_config",
        "_doomed",
        "_flushes",
        "_known",
        "_new_names",
        "_random_below",
        "_stable_point",
        "active_segment",
        "before_truncate",
        "broken",
        "folder",
        "handles",
        "has_aborted",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producers",
        "recovery_point",
        "segments",
        "snapshots",
        "sought",
        "swapping",
        "syncing",
        "takes_runs",
        "topic",
        "topic_id",
        "truncations",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        folder: Path,
        handles: HandleCache,
        segments: list[Segment],
        *,
        random_below: Callable[[int], int],
        log_start_offset: int = 0,
        recovery_point: int = 0,
        leader_epochs: EpochCache | None = None,
        producers: ProducerStateTable | None = None,
        snapshots: ProducerSnapshots | None = None,
        created: bool = False,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self._config = config
        self.takes_runs = takes_runs(config)
        self.folder = folder
        self.handles = handles
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active_segment = segments[-1]
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.active_segment.next_offset
        self.recovery_point = recovery_point
        """Everything before it is on the device."""
        self._stable_point = 0
        """The last stable offset when what `recovery_point` stands for began to be flushed."""
        self.leader_epochs = leader_epochs if leader_epochs is not None else EpochCache()
        self.producers = producers if producers is not None else ProducerStateTable()
        self.snapshots = (
            snapshots if snapshots is not None else ProducerSnapshots(handles.disk, folder)
        )
        self.has_aborted = False
        """Whether any segment has the marker of an aborted transaction."""
        self.truncations = 0
        self.before_truncate: Callable[[], None] | None = None
        """Called when the recovery point has gone back, before anything is cut off."""
        self._random_below = random_below
        self.broken = False
        """Whether the device failed: what is durable is not known, and nothing is retried."""
        self._flushes: list[FlushJob] = []
        """Under way, or failed: after a failure there is no other."""
        self.syncing = handles.disk.mutex()
        """Held by whoever syncs, until it is known how that ended: see `FlushJob.run`."""
        self.swapping = False
        """Whether compacted segments are about to take the place of others: none may go."""
        self._new_names: set[Path] = {folder, folder.parent} if created else set()
        self._doomed: list[tuple[int, Path]] = []
        self._known = KnownBatches()
        self.sought: tuple[Place, ...] = ()
        """What searches have last had read: see `check_seek`."""

    @property
    def config(self) -> LogConfig:
        """May be replaced at any time; what concerns a segment's indexes counts from the next."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.takes_runs = takes_runs(config)
        self.active_segment.roll_after = -1
        if config.durability != FSYNC:
            self.producers.commit_markers(self.log_end_offset)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def roll(self, now_ms: int) -> Segment:
        """Seals the active segment and begins the next one at the log's end."""
        config = self.config
        old, base = self.active_segment, self.log_end_offset
        if old.size == 0 and old.base_offset == base:
            return old
        old.seal()
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        segment = Segment(
            self.handles,
            self.folder,
            base,
            config,
            created_ms=now_ms,
            jitter_ms=self._random_below(jitter) if jitter > 0 else 0,
        )
        try:
            self.snapshots.write(self.producers)
            segment.create()
        except OSError:
            self._take_back(segment)
            raise
        self.segments.append(segment)
        self._bases.append(base)
        self.active_segment = segment
        self._known.clear()
        self._new_names.add(self.folder)
        return segment

    def _take_back(self, segment: Segment) -> None:
        """Of a segment that could not begin nothing may stay while the one before it goes on.

        The next start would end the log where that file says that it goes on.
        """
        self.active_segment.sealed = False
        self._new_names.add(self.folder)
        try:
            for suffix in SEGMENT_SUFFIXES:
                remove_if_exists(self.handles.disk, segment.path(suffix))
        except OSError:
            self.broken = True

    # Durability

    @property
    def last_stable_offset(self) -> int:
        """Every transaction that reaches below it is decided, and that is committed."""
        first = self.producers.first_unstable_offset
        return self.log_end_offset if first < 0 else max(first, self.log_start_offset)

    @property
    def durable_stable_offset(self) -> int:
        """Every transaction that reaches below it is on the device, and so is what decided it."""
        if self.recovery_point >= self.log_end_offset:
            return self.last_stable_offset
        return min(self._stable_point, self.recovery_point)

    def begin_flush(self, *, beside_others: bool = False) -> FlushJob | None:
        """What to sync; `None` when all is durable or a flush is under way.

        One `beside_others` waits for none of those, and syncs again what they have yet to. Raises
        `OSError` or `CorruptLog` with nothing claimed: the next one begins with the same.
        """
        if self._flushes and not beside_others:
            return None
        if self.recovery_point >= self.log_end_offset and not self._new_names:
            return None
        names = self._names_to_sync()
        for other in self._flushes:
            names[:0] = [path for path in other.names if path not in names]
        stable = self.last_stable_offset
        job = FlushJob(self, self.log_end_offset, stable, self.truncations, [], names)
        try:
            self._open_unflushed(job)
        except BaseException:
            job.let_go()
            raise
        self._new_names = set()
        self._flushes.append(job)
        return job

    def _open_unflushed(self, job: FlushJob) -> None:
        """Gives the job its files."""
        for segment in self.unflushed_segments():
            segment.try_write_index()
            handle = segment.open()
            handle.readers += 1
            job.handles.append(handle)

    def _names_to_sync(self) -> list[Path]:
        """Files before the folders that name them."""
        if self.leader_epochs.is_behind(self.log_end_offset):
            self.write_epochs()
        names = set(self._new_names)
        if self.folder.parent in names:
            names.add(self.folder / PARTITION_METADATA)
        return sorted(names, reverse=True)

    def finish_flush(self, job: FlushJob) -> None:
        """Takes note that `job.run()` has returned."""
        job.release()
        self._flushes.remove(job)
        if job.generation == self.truncations and not self.broken:
            self.recovery_point = max(self.recovery_point, job.end_offset)
            self._stable_point = max(self._stable_point, job.stable_offset)
            self.producers.commit_markers(self.recovery_point)

    def put_off_flush(self, job: FlushJob) -> None:
        """Takes back a job that ran out of descriptors; the next flush begins with the same."""
        job.let_go()
        self._flushes.remove(job)
        self._new_names |= set(job.names)

    def flush(self) -> None:
        """Blocks until everything appended is durable, whatever else is being flushed."""
        job = self.begin_flush(beside_others=True)
        if job is None:
            return
        try:
            job.run()
            if any(other.failed for other in self._flushes):
                # The device tells of lost pages once, and another flush has been told.
                raise OSError(errno.EIO, "another flush of the log has failed")
        except OSError as error:
            if lacks_descriptors(error):
                self.put_off_flush(job)
                raise
            job.done = False
            job.release()
            raise
        self.finish_flush(job)

    @property
    def may_be_closed(self) -> bool:
        """Whether a close can make everything durable and claim it."""
        return not self.broken and not self._flushes

    def unflushed_segments(self) -> list[Segment]:
        """Those with records at or beyond the recovery point."""
        number = bisect_right(self._bases, self.recovery_point) - 1
        return [segment for segment in self.segments[max(number, 0) :] if segment.size]

    def _cut_segments(self, keep: int, end: int) -> None:
        """Leaves the first `keep` segments, and in the last of them what is below `end`.

        The later ones are gone for good before anything is written where they were.
        """
        if keep < len(self.segments):
            for segment in reversed(self.segments[keep:]):
                self._delete_segment(segment, 0)
            self.handles.disk.sync_dir(self.folder)
            del self.segments[keep:], self._bases[keep:]
        self.active_segment = segment = self.segments[-1]
        segment.truncate(end)

    def _restart_at(self, offset: int) -> None:
        """Deletes every segment and begins again at `offset`."""
        old = self.segments[0]
        for segment in reversed(self.segments):
            self._delete_segment(segment, 0)
        self.handles.disk.sync_dir(self.folder)
        segment = Segment(
            self.handles, self.folder, offset, self.config, created_ms=old.created_ms
        ).create()
        self.segments, self._bases = [segment], [offset]
        self.active_segment = segment
        self._new_names.add(self.folder)

    def replace_segments(self, old: list[Segment], new: Segment, due_ms: int) -> None:
        """Takes a run of sealed segments out and `new`, whose files are about to come, in.

        After an `OSError` for want of space nothing has changed.
        """
        first, doomed = self.segments.index(old[0]), len(self._doomed)
        try:
            for segment in old:
                self._delete_segment(segment, due_ms)
        except OSError as error:
            if is_shortage(error):
                self._spare(doomed)
            raise
        self.segments[first : first + len(old)] = [new]
        self._bases = [segment.base_offset for segment in self.segments]
        for segment in old[1:]:
            self.snapshots.remove_at(segment.base_offset)
        self.has_aborted = any(segment.txn_index is not None for segment in self.segments)
        self._known.clear()
        self._new_names.add(self.folder)

    def _delete_segment(self, segment: Segment, due_ms: int) -> None:
        """Renames the `.log` last: without it, what is left is no segment."""
        self.handles.close(segment)
        for suffix in reversed(SEGMENT_SUFFIXES):
            path = segment.path(suffix)
            target = path.with_name(path.name + DELETED)
            try:
                self.handles.disk.rename(path, target)
            except FileNotFoundError:
                continue
            self._doomed.append((due_ms, target))

    def _spare(self, first: int) -> None:
        """Gives the files from the `first` one on that are to be removed their names back."""
        while len(self._doomed) > first:
            path = self._doomed[-1][1]
            self.handles.disk.rename(path, path.with_suffix(""))
            self._doomed.pop()

    def _remove_doomed(self, now_ms: float) -> None:
        for _, path in [entry for entry in self._doomed if entry[0] <= now_ms]:
            remove_if_exists(self.handles.disk, path)
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]

    def write_epochs(self) -> None:
        """Writes the leader epochs; the next flush waits for the device."""
        path = self.folder / LEADER_EPOCHS
        replace(self.handles.disk, path, encode_epochs(self.leader_epochs.entries))
        self.leader_epochs.note_saved()
        self._new_names |= {path, self.folder}

    def write_out(self) -> None:
        """Writes what the files lack before a last flush; no other log is touched.

        Raises `OSError` or `CorruptLog`.
        """
        for segment in self.segments:
            segment.finish()
        if self.producers.end_offset > self.log_start_offset:
            self.snapshots.write(self.producers)
        if self.leader_epochs.is_behind(self.log_end_offset):
            self.write_epochs()

    def abandon(self) -> None:
        """Gives up the files without writing anything."""
        for segment in self.segments:
            self.handles.close(segment)

    def move_to(self, folder: Path) -> None:
        """Tells the log that its directory has been renamed."""
        self.folder = self.snapshots.folder = folder
        for segment in self.segments:
            segment.folder = folder
