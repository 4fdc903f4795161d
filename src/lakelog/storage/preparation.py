"""Work for a thread that must be done before stored batches or indexes can be used.

The loop reads only from memory and from the page cache, and uses only loaded indexes. Where it
needs more, storage raises `NotReady`. The caller runs the job in a thread and then repeats the
call. So the loop neither loads nor rebuilds an index.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Protocol, TypeVar

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


def wait_for(ask: Callable[[], T]) -> T:
    """Call `ask` until it raises no `NotReady`, running each job here; return its result.

    For callers that may block. Raises `OSError` if a job fails, and what `ask` raises.
    """
    while True:
        try:
            return ask()
        except NotReady as first:
            job = first.job
        job.run()
        job.finish()
        if job.failure is not None:
            raise job.failure
