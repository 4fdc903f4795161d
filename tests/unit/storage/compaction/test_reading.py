"""Source files of a compaction."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from compaction_kit import LIMITS
from lakelog.base.config.log_config import LogConfig
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.compaction.plan import examine, make_job
from lakelog.storage.compaction.reading import SourceFiles
from storage_kit import NOW, Store, append, make_batch, open_files

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}))


def test_the_files_are_closed_at_the_end(tmp_path: Path) -> None:
    store = Store(PosixDisk(), config=CONFIG, path=tmp_path)
    log = store.create()
    for _ in range(3):
        append(log, make_batch(2))
        log.roll(NOW)
    log.flush()
    job = make_job(examine(log, None, NOW, log.log_end_offset), NOW, LIMITS)
    before = open_files(tmp_path)
    with ExitStack() as files:
        SourceFiles(store.disk, job, lambda size: None, files)
        sources = len(job.segments) + len(job.later)
        assert len(open_files(tmp_path)) == len(before) + sources
    assert open_files(tmp_path) == before
