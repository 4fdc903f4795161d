"""Callers that may block run the jobs that the event loop leaves to threads."""

from __future__ import annotations

import errno
from collections.abc import Hashable
from pathlib import Path

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.storage.files import INDEX, LOG
from lakelog.storage.log import Log
from lakelog.storage.preparation import DetachedSegment, NotReady, wait_for
from storage_kit import NOW, Store, append, make_batch, memory_store


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


CONFIG = LogConfig(index_interval_bytes=100)


def filled() -> tuple[Store, Log]:
    store = memory_store(CONFIG)
    log = store.create()
    for _ in range(10):
        append(log, make_batch(2))
    return store, log


def test_a_rebuilt_index_of_a_copy_changes_no_file() -> None:
    store, log = filled()
    log.roll(NOW)
    segment = log.segments[0]
    store.disk.remove(segment.path(INDEX))
    copy = DetachedSegment(segment, opens=True)
    copy.rebuild_index("it is missing")
    assert len(copy.index.offsets) > 3
    assert not store.disk.exists(segment.path(INDEX)), "the loop writes it, not a thread"
    copy.close()


def test_a_copy_is_the_segment_at_that_time() -> None:
    _, log = filled()
    segment = log.segments.active
    segment.open()
    copy = DetachedSegment(segment)
    size, end = segment.size, segment.next_offset
    append(log, make_batch(2))
    assert (copy.size, copy.next_offset) == (size, end)
    assert copy.handle is segment.handle


def test_a_copy_with_its_own_file_survives_the_eviction_of_the_other() -> None:
    _, log = filled()
    segment = log.segments.active
    copy = DetachedSegment(segment, opens=True)
    mine = copy.open()
    assert mine is copy.open()
    assert mine is not segment.open()
    copy.close()
    assert segment.open().file.read_at(0, 10)
    copy.close()


def test_a_segment_that_retention_removed_is_missing() -> None:
    store, log = filled()
    copy = DetachedSegment(log.segments.active, opens=True)
    store.disk.remove(log.segments.active.path(LOG))
    with pytest.raises(FileNotFoundError):
        copy.open()
