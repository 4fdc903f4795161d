"""Replacement of segments in a log by cleaned ones."""

from __future__ import annotations

import pytest

from compaction_kit import LIMITS, answers
from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.records.builder import BatchBuilder
from lakelog.storage.compaction.job import CleanedGroup
from lakelog.storage.compaction.plan import examine, make_job
from lakelog.storage.compaction.swap import (
    begin_swap,
    can_swap,
    end_swap,
    finish_interrupted_swaps,
    finish_swap,
)
from lakelog.storage.files import LOG, SNAPSHOT, SWAP, file_name
from storage_kit import DATA, NOW, ManualClock, Store, make_batch, memory_store

CONFIG = LogConfig(
    segment_bytes=300,
    index_interval_bytes=100,
    cleanup_policy=frozenset({"compact", "delete"}),
    retention_ms=1000,
    file_delete_delay_ms=0,
)


@pytest.fixture
def store() -> Store:
    """A log of several closed, durable segments with records of few keys."""
    store = memory_store(CONFIG)
    log = store.create()
    for number in range(12):
        builder = BatchBuilder()
        builder.append(NOW, b"%d" % (number % 9), b"x" * 60)
        batch = builder.build(7, 0, number)
        log.append(batch, leader_epoch=0, now_ms=NOW)
    log.roll(NOW)
    log.flush()
    return store


def cleaned(store: Store) -> CleanedGroup:
    """One cleaned segment that a helper wrote from several small ones."""
    store.log.use_config(CONFIG._replace(segment_bytes=3000))
    job = make_job(examine(store.log, None, NOW, store.log.log_end_offset), NOW, LIMITS)
    found = [answer for answer in answers(store.log, job) if isinstance(answer, CleanedGroup)]
    assert len(found[0].sources) > 1
    return found[0]


def test_retention_waits_until_a_swap_is_over(store: Store) -> None:
    """A segment that is about to be replaced must not go under the swap."""
    log, group = store.log, cleaned(store)
    job = begin_swap(log, group)
    assert log.delete_old_segments(NOW + 60_000) == 0
    assert not can_swap(log, group), "one at a time"
    job.run()
    finish_swap(log, group, NOW)
    end_swap(log)
    assert log.delete_old_segments(NOW + 60_000) > 0


def test_a_swap_that_is_due_survives_the_power(store: Store) -> None:
    """From there on a start completes it, so each of its files has to be whole."""
    log, group = store.log, cleaned(store)
    begin_swap(log, group).run()
    assert isinstance(store.disk, MemoryDisk)
    left = store.disk.copy_after_crash()
    for suffix in group.suffixes:
        path = log.folder / (file_name(group.base_offset, suffix) + SWAP)
        assert left.read(path) == store.disk.read(path) != b""


def test_a_swap_that_a_start_has_completed_survives_the_power(store: Store) -> None:
    log, group = store.log, cleaned(store)
    begin_swap(log, group).run()
    disk = store.disk
    assert isinstance(disk, MemoryDisk)
    finish_interrupted_swaps(disk, log.folder, disk.list(log.folder))
    names = disk.list(log.folder)
    assert not any(name.endswith(SWAP) for name in names)
    assert disk.copy_after_crash().list(log.folder) == names


def test_a_start_completes_the_swap_of_a_segment_with_one_record() -> None:
    """Its end offset, 1, is right after the smallest base offset."""
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA)
    names = (file_name(0, LOG), file_name(1, LOG))
    for name in (*names, names[0] + SWAP):
        file = disk.open(DATA / name, create=True)
        file.write_at(0, make_batch(1))
        file.close()
    assert finish_interrupted_swaps(disk, DATA, disk.list(DATA)) == [names[0]]
    assert disk.list(DATA) == [*names]


def test_snapshots_of_replaced_segments_go(store: Store) -> None:
    """The snapshot of the first stays: the cleaned segment has its base offset."""
    log, group = store.log, cleaned(store)
    bases = [int(name.removesuffix(SNAPSHOT)) for name in snapshots(store)]
    assert set(group.sources[1:]) <= set(bases)
    begin_swap(log, group).run()
    finish_swap(log, group, NOW)
    end_swap(log)
    left = {int(name.removesuffix(SNAPSHOT)) for name in snapshots(store)}
    assert left == set(bases) - set(group.sources[1:])


def snapshots(store: Store) -> list[str]:
    names = store.disk.list(store.log.folder)
    return [name for name in names if name.endswith(SNAPSHOT)]
