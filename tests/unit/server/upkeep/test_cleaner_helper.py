"""The helper program: its answers to jobs and failures, and its throttle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.runtime.posix import PosixDisk
from lakelog.server.upkeep import cleaner_helper
from lakelog.server.upkeep.cleaner_helper import Throttle, answers
from lakelog.storage.compaction.job import CompactionDone, CompactionFailed, CompactionJob
from lakelog.storage.compaction.plan import CleanerLimits, examine, make_job
from storage_kit import NOW, Store, append, make_batch


class SlowClock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_no_more_than_so_many_bytes_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SlowClock()
    monkeypatch.setattr(cleaner_helper, "time", clock)
    throttle = Throttle(1000)
    for _ in range(100):
        throttle(50)
    assert clock.now_s == pytest.approx(105, abs=0.06)


def test_no_limit_is_no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SlowClock()
    monkeypatch.setattr(cleaner_helper, "time", clock)
    Throttle(0)(1 << 40)
    Throttle(1.7976931348623157e308)(1 << 40)
    assert clock.now_s == 100


@pytest.fixture
def job(tmp_path: Path) -> CompactionJob:
    config = LogConfig(segment_bytes=400, cleanup_policy=frozenset({"compact"}))
    store = Store(PosixDisk(), config=config, path=tmp_path / "data")
    log = store.create()
    for _ in range(10):
        append(log, make_batch())
    log.roll(NOW)
    log.flush()
    found = examine(log, None, NOW, log.log_end_offset)
    return make_job(found, NOW, CleanerLimits(1 << 20, 0.9, 1000, 0.0))


def test_answers_of_a_successful_job(job: CompactionJob) -> None:
    *groups, done = answers(PosixDisk(), job, Throttle(0))
    assert groups and isinstance(done, CompactionDone)
    assert done.end_offset == 10


def test_answer_for_damaged_data(job: CompactionJob) -> None:
    path = min(job.folder.glob("*.log"))  # a file system may list them in any order
    content = bytearray(path.read_bytes())
    content[80] ^= 1
    path.write_bytes(content)
    (failed,) = answers(PosixDisk(), job, Throttle(0))
    assert isinstance(failed, CompactionFailed) and failed.kind == "corrupt"
    assert not list(job.folder.glob("*.cleaned"))


def test_answer_for_missing_files(job: CompactionJob) -> None:
    max(job.folder.glob("*.log")).unlink()
    (failed,) = answers(PosixDisk(), job, Throttle(0))
    assert isinstance(failed, CompactionFailed) and failed.kind == "missing"


def test_answer_for_a_folder_that_cannot_be_written(job: CompactionJob) -> None:
    blocked = job.folder / "00000000000000000000.log.cleaned"
    blocked.mkdir()
    (failed,) = answers(PosixDisk(), replace(job), Throttle(0))
    assert isinstance(failed, CompactionFailed) and failed.kind == "io"
