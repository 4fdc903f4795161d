"""Making a log durable, split so that only the waiting is done in a thread.

`Flushes` belongs to the log's owner; `FlushJob.run` touches nothing but files that stay open for
it, and may be in a thread.

The kernel reports a page that it could not write once, to the first sync of the file after the
failure. So the syncs of one log run one after another, each together with its verdict, which the
next one can see.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lakelog.base.errors import lacks_descriptors
from lakelog.storage.files import PARTITION_METADATA, SYNC_FAILED, sync_file
from lakelog.storage.segments.handles import Handle
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_list import SegmentList


class Flushes:
    """The durable end of a log, and the running flushes that advance it."""

    __slots__ = ("_jobs", "broken", "recovery_point", "segments", "stable_point", "syncing")

    def __init__(self, segments: SegmentList, recovery_point: int) -> None:
        self.segments = segments
        self.recovery_point = recovery_point
        """Every record before this offset is on the device."""
        self.stable_point = 0
        """The last stable offset when the flush that set `recovery_point` began."""
        self.broken = False
        """Whether the device failed: the durable end is unknown, and nothing is retried."""
        self.syncing = segments.disk.mutex()
        """Held during a sync until its outcome is known; see `FlushJob.run`."""
        self._jobs: list[FlushJob] = []
        """Running or failed jobs; after a failure no other job begins."""

    @property
    def may_be_closed(self) -> bool:
        """Whether a close can make everything durable and claim it."""
        return not self.broken and not self._jobs

    def is_due(self, end_offset: int, *, beside_others: bool) -> bool:
        """Return whether a flush up to `end_offset` has work and may begin.

        It waits for a running flush, unless it may run `beside_others`.
        """
        # A second flush of the same files would wait for the first one in a thread, and gain
        # nothing.
        if self._jobs and not beside_others:
            return False
        return self.recovery_point < end_offset or bool(self.segments.unsynced)

    def begin(self, end_offset: int, stable_offset: int) -> FlushJob:
        """Return a job that syncs all before `end_offset`, including the unfinished work of others.

        Raises `OSError` or `CorruptLog` and then claims nothing: the next flush begins with the
        same files.
        """
        assert self.recovery_point <= end_offset
        names = self._names_to_sync()
        # A running job may still fail, so its files are synced again.
        for other in self._jobs:
            names[:0] = [path for path in other.names if path not in names]
        job = FlushJob(self, end_offset, stable_offset, self.segments.generation, [], names)
        try:
            self._open_unflushed(job)
        except BaseException:
            job.give_up()
            raise
        # Only after all files were opened: a failed attempt must not lose their names.
        self.segments.unsynced = set()
        self._jobs.append(job)
        return job

    def _open_unflushed(self, job: FlushJob) -> None:
        for segment in self.unflushed_segments():
            segment.indexes.try_write()
            handle = segment.open()
            # The cache must not close the file before the job has synced it.
            handle.readers += 1
            job.handles.append(handle)

    def _names_to_sync(self) -> list[Path]:
        """Return the unsynced paths, files before the folders that name them.

        A durable name of a file without durable content would be worse than no file.
        """
        folder, names = self.segments.folder, set(self.segments.unsynced)
        if folder.parent in names:
            names.add(folder / PARTITION_METADATA)
        return sorted(names, reverse=True)

    def unflushed_segments(self) -> list[Segment]:
        """Return the segments with records at or beyond the recovery point."""
        segments = self.segments
        first = segments.number_of(self.recovery_point)
        return [segment for segment in segments[first:] if segment.size]

    def run_now(self, job: FlushJob) -> None:
        """Run a job and block until it ends. Raises `OSError`.

        After a lack of descriptors the next flush begins with the same files. After any other
        failure, also of another running job, the log is `broken`.
        """
        try:
            job.run()
            if any(other.failed for other in self._jobs):
                # The device reports lost pages once, and it has reported them to the other job.
                raise OSError(errno.EIO, "another flush of the log has failed")
        except OSError as error:
            if lacks_descriptors(error):
                self.put_off(job)
                raise
            job.done = False
            job.release()
            raise

    def finish(self, job: FlushJob) -> bool:
        """Advance the recovery point after `job.run()`; return whether the job proves anything.

        It does not after a truncation, which may have removed the synced bytes since.
        """
        assert job.done
        assert job.end_offset >= 0 and job in self._jobs, "each job is finished once"
        job.release()
        self._jobs.remove(job)
        # New records may have taken the offsets of synced ones since.
        if job.generation != self.segments.generation or self.broken:
            return False
        # Jobs beside one another may finish in any order; an earlier one proves less.
        self.recovery_point = max(self.recovery_point, job.end_offset)
        self.stable_point = max(self.stable_point, job.stable_offset)
        return True

    def put_off(self, job: FlushJob) -> None:
        """Take back a job that ran out of descriptors; the next flush begins with the same."""
        job.give_up()
        self._jobs.remove(job)
        self.segments.unsynced |= set(job.names)

    def truncate_to(self, end: int) -> bool:
        """Lower the recovery point to the log's new end; return whether it was above it."""
        assert end >= 0
        # Before the comparison: the stable point may be above the end even if the recovery point is
        # not.
        self.stable_point = min(self.stable_point, end)
        if end >= self.recovery_point:
            return False
        self.recovery_point = end
        return True


@dataclass(slots=True, eq=False)
class FlushJob:
    """The files to sync so that all records before `end_offset` survive a power failure."""

    flushes: Flushes
    end_offset: int
    stable_offset: int
    """The last stable offset at the start; the markers that decided it are before `end_offset`."""
    generation: int
    """`SegmentList.generation` at the start: after a truncation the job proves nothing."""
    handles: list[Handle]
    names: list[Path]
    """Small files, and the folders that hold new names."""
    done: bool = False
    failed: bool = False

    def run(self) -> None:
        """Block until all is synced, and while another job of the log runs. Raises `OSError`.

        After an `OSError` the durable end is unknown, and the job must not be repeated. Only
        when `lacks_descriptors` is true of it may `Flushes.put_off` be called.
        """
        assert not self.done
        assert not self.failed, "another sync would report success for pages that are lost"
        with self.flushes.syncing:
            try:
                self._sync()
            except OSError as error:
                if not lacks_descriptors(error):  # else the device has reported nothing
                    # The kernel has marked the lost pages as clean. A repeated sync would succeed,
                    # and the broker would acknowledge records that no device has (fsync semantics
                    # of Linux since 4.13).
                    self.failed = True
                    self._leave_mark()
                raise
            self.done = True

    def _leave_mark(self) -> None:
        """For the next start. It need not be durable: it lasts as long as the page cache itself."""
        segments = self.flushes.segments
        with suppress(OSError):
            segments.disk.open(segments.folder / SYNC_FAILED, create=True).close()

    def _sync(self) -> None:
        disk = self.flushes.segments.disk
        for handle in self.handles:
            handle.file.sync()
        for path in self.names:
            with suppress(FileNotFoundError):  # the log has been deleted meanwhile
                disk.sync_dir(path) if disk.is_dir(path) else sync_file(disk, path)

    def release(self) -> None:
        """Close the files. A job that has not succeeded leaves its log `broken`.

        `Flushes.finish` calls it after a success, the owner after a failure.
        """
        self.flushes.broken |= not self.done
        self.give_up()

    def give_up(self) -> None:
        """Close the files of a job that no longer needs them or has not begun."""
        for handle in self.handles:
            handle.release()
        self.handles.clear()
