"""Work for a thread that must be done before stored batches or indexes can be used.

The loop reads only from memory and from the page cache, and uses only loaded indexes. Where it
needs more, storage raises `NotReady`. The caller runs the job in a thread and then repeats the
call. So the loop neither loads nor rebuilds an index.

To load the index of a large segment may require a walk over all of its batch headers. A thread does
that with a copy of the segment (`DetachedSegment`), while the loop continues to use the segment
itself. The loop then applies the indexes of the copy (`Segment.apply`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Protocol, TypeVar

from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import LOG
from lakelog.storage.segments.handles import Handle
from lakelog.storage.segments.segment import Segment

T = TypeVar("T")


class Preparation(Protocol):
    """A job: work on a range of a segment. It holds the range until `finish` or `abandon`.

    Call either `run` and then `finish`, or `abandon`. `failure` is the error of the device, if any;
    `start` is the byte of `path` at which the range begins.
    """

    path: Path
    start: int
    failure: OSError | None

    @property
    def key(self) -> Hashable:
        """Equal for jobs that do the same work."""
        ...

    def run(self) -> None:
        """Do the work; blocks and may be in a thread. Never raises."""

    def finish(self) -> None:
        """Hand over the result; called by the log's owner, after `run`."""

    def abandon(self) -> None:
        """Release the job's range; called by the log's owner, instead of `run`."""


class NotReady(Exception):  # noqa: N818 - a request, not an error
    """Run `job`, then call `job.finish`, then repeat the call."""

    def __init__(self, job: Preparation) -> None:
        super().__init__(f"{job.path} needs a job from byte {job.start} on")
        self.job = job


def wait_for(ask: Callable[[], T], *, may_wait: bool = True) -> T:
    """Call `ask` until it raises no `NotReady`, running each job here; return its result.

    Callers that may not block call it once. Raises `OSError` if a job fails, and what `ask` raises.
    """
    while True:
        try:
            return ask()
        except NotReady as first:
            if not may_wait:
                raise
            job = first.job
        job.run()
        job.finish()
        if job.failure is not None:
            raise job.failure


class DetachedSegment(Segment):
    """A copy of an open segment as it is now, without its indexes.

    It shares the open file, which its user must hold open, unless it `opens` one of its own.
    """

    __slots__ = ()

    def __init__(self, segment: Segment, *, opens: bool = False) -> None:
        for name in Segment.__slots__:
            setattr(self, name, getattr(segment, name))
        if opens:
            self.handle = None
        self.indexes = segment.indexes.detached()
        self.checks = None

    def open(self) -> Handle:
        """Return the open file. Raises `OSError`: `FileNotFoundError` for a deleted segment."""
        if self.handle is None:
            self.handle = Handle(self.disk.open(self.path(LOG)))
        return self.handle

    def close(self) -> None:
        """Close the file of a copy that opened one."""
        if self.handle is not None:
            self.handle.file.close()
            self.handle = None


class CopiesJob:
    """A `Preparation` that reads the files of segments with copies.

    A subclass has its work in `_work`, which may raise, and closes its copies in `_close`. Errors
    are handed over by `finish`. `run` opens files of its own: thousands of jobs may wait.
    """

    def __init__(self, path: Path, start: int, key: Hashable) -> None:
        self.path = path
        self.start = start
        self.key = key
        self.failure: OSError | None = None
        self._error: CorruptLog | None = None
        """Why the log cannot be read."""
        self._missing: FileNotFoundError | None = None
        """A failure only if the log still has the file: retention may delete it meanwhile."""

    def run(self) -> None:
        """Block on the device; touches nothing but files. Raises nothing."""
        try:
            self._work()
        except FileNotFoundError as error:
            self._missing = error
        except CorruptLog as error:
            self._error = error
        except OSError as error:
            self.failure = error
        finally:
            self._close()

    def _work(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError

    def abandon(self) -> None:
        """Do nothing: the job holds nothing before `run`."""
