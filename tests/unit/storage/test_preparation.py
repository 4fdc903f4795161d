"""Callers that may block run the jobs that the event loop leaves to threads."""

from __future__ import annotations

import errno
from collections.abc import Hashable
from pathlib import Path

import pytest

from lakelog.storage.preparation import NotReady, wait_for


class Job:
    """A `Preparation` of one byte, which fails if it was created with an error."""

    def __init__(self, start: int, failure: OSError | None = None) -> None:
        self.path = Path("/data/t-0/0.log")
        self.start = start
        self.failure: OSError | None = None
        self.calls: list[str] = []
        self._failure = failure

    @property
    def key(self) -> Hashable:
        return self.start

    def run(self) -> None:
        self.calls.append("run")
        self.failure = self._failure

    def finish(self) -> None:
        self.calls.append("finish")

    def abandon(self) -> None:
        self.calls.append("abandon")


def test_a_call_is_repeated_until_all_its_jobs_are_done() -> None:
    jobs = [Job(start) for start in range(3)]

    def ask() -> str:
        for job in jobs:
            if not job.calls:
                raise NotReady(job)
        return "found"

    assert wait_for(ask) == "found"
    assert [job.calls for job in jobs] == [["run", "finish"]] * 3


def test_a_failure_of_the_device_ends_the_wait_and_releases_the_range() -> None:
    job = Job(0, OSError(errno.EIO, "Input/output error"))

    def ask() -> str:
        raise NotReady(job)

    with pytest.raises(OSError, match="Input/output error"):
        wait_for(ask)
    assert job.calls == ["run", "finish"], "a job without an end would hold its range for ever"


def test_other_errors_of_a_call_are_raised() -> None:
    def ask() -> str:
        raise KeyError("x")

    with pytest.raises(KeyError):
        wait_for(ask)
