"""What a thread must do before stored batches can be served."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Preparation(Protocol):
    """Work on a range of a segment, which it holds until `finish` or `abandon`, one of them once.

    `failure` is what the device has said to it, and `start` the byte of `path` that it begins at.
    """

    path: Path
    start: int
    failure: OSError | None

    def run(self) -> None:
        """Blocks; may be in a thread."""

    def finish(self) -> None:
        """For the log's owner, after `run`."""

    def abandon(self) -> None:
        """For the log's owner, instead of `run`."""


class NotReady(Exception):  # noqa: N818 - what is to be done first
    """Run `job`, then call `job.finish`, then ask again."""

    def __init__(self, job: Preparation) -> None:
        super().__init__(f"{job.path} has not been looked at from byte {job.start} on")
        self.job = job
