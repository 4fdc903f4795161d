"""Compacting a log in a test: the helper's work and the swap, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from lakelog.records.batch import BatchHeader, iter_batches
from lakelog.storage.compaction.clean import compact
from lakelog.storage.compaction.job import (
    CleanedGroup,
    CompactionDone,
    CompactionJob,
    decode_answer,
    encode_answer,
)
from lakelog.storage.compaction.plan import CleanableLog, CleanerLimits, examine, make_job
from lakelog.storage.compaction.swap import begin_swap, end_swap, finish_swap
from lakelog.storage.log import Log
from storage_kit import Store

LIMITS = CleanerLimits(
    map_bytes=1 << 20, map_load_factor=0.9, read_bytes=1000, bytes_per_second=0.0
)


def answers(log: Log, job: CompactionJob) -> Iterator[CleanedGroup | CompactionDone]:
    """Answers of a helper, encoded and decoded."""
    job = CompactionJob.decode(job.encode())
    for answer in compact(log.segments.disk, job, lambda size: None):
        decoded = decode_answer(encode_answer(answer))
        assert decoded == answer
        yield answer


def swap_in(log: Log, group: CleanedGroup, now_ms: int) -> None:
    job = begin_swap(log, group)
    job.run()
    finish_swap(log, group, now_ms)
    end_swap(log)


class Cleaner:
    """Compact the one log of a `Store`; `cleaned` is the cleaner's checkpoint."""

    def __init__(self, store: Store, limits: CleanerLimits = LIMITS) -> None:
        self.store = store
        self.limits = limits
        self.cleaned: int | None = None
        self.last: CompactionDone | None = None

    def is_due(self, *, last_stable_offset: int | None = None) -> bool:
        return self._examine(last_stable_offset).is_due

    def _examine(self, stable: int | None) -> CleanableLog:
        log = self.store.log
        end = log.log_end_offset if stable is None else stable
        return examine(log, self.cleaned, self.store.clock.now_ms, end)

    def run(self, *, last_stable_offset: int | None = None) -> CompactionDone | None:
        """One round, due or not; none when there is nothing to clean."""
        log, now = self.store.log, self.store.clock.now_ms
        found = self._examine(last_stable_offset)
        if not found.cleanable_bytes:
            return None
        job = make_job(found, now, self.limits)
        for answer in answers(log, job):
            if isinstance(answer, CleanedGroup):
                swap_in(log, answer, now)
            else:
                self.cleaned, self.last = answer.end_offset, answer
        return self.last


def headers(log: Log) -> list[BatchHeader]:
    """Headers of all batches in the files, also before the log's start."""
    found: list[BatchHeader] = []
    for segment in log.segments:
        data = segment.open().file.read_at(0, segment.size)
        found.extend(header for header, _ in iter_batches(data))
    return found
