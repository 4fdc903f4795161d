"""Records that a flipped bit may hide."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from lakelog.records.batch import patch_offset_and_epoch
from lakelog.records.builder import BatchBuilder
from lakelog.storage.folder.ownership import CLEAN_SHUTDOWN
from simulator.checkers.findings import Findings
from simulator.checkers.record_history import RecordHistory
from simulator.faults.bit_flips import BitFlips
from storage_kit import ManualClock

DATA = Path("/data")
PLACE = ("state", 0)
ORDERS = ("orders", 0)


def test_the_first_batch_hides_the_compacted_offsets_before_it() -> None:
    """A fetch from a compacted offset before it in that segment returns this batch."""
    disk, history = MemoryDisk(ManualClock()), RecordHistory(Findings())
    disk.make_dirs(DATA / "state-0")
    builder = BatchBuilder()
    builder.append(0, b"key", b"value")
    batch = builder.build()
    patch_offset_and_epoch(batch, 0, 12, 0)
    disk.write_atomic(DATA / "state-0" / "00000000000000000000.log", batch)
    disk.write_atomic(DATA / CLEAN_SHUTDOWN, b"")
    history.partition(PLACE).compacted = True
    flips = BitFlips(disk, DATA, history, 4096)
    for seed in range(5):
        while not flips.flip_record(random.Random(seed), frozenset()):
            seed += 100
        assert history.partition(PLACE).is_hidden(0)
        flips.repair_others(())


def log_of_batches(disk: MemoryDisk, count: int) -> Path:
    """A log of a topic without compaction, one record in each batch."""
    disk.make_dirs(DATA / "orders-0")
    data = bytearray()
    for offset in range(count):
        builder = BatchBuilder()
        builder.append(0, None, b"value %02d" % offset)
        batch = builder.build()
        patch_offset_and_epoch(batch, 0, offset, 0)
        data += batch
    path = DATA / "orders-0" / "00000000000000000000.log"
    disk.write_atomic(path, data)
    return path


@pytest.mark.parametrize("seed", range(20))
def test_a_flip_below_the_recovery_point_hides_its_batch_and_can_be_repaired(seed: int) -> None:
    disk, history = MemoryDisk(ManualClock()), RecordHistory(Findings())
    path = log_of_batches(disk, 20)
    disk.write_atomic(DATA / CLEAN_SHUTDOWN, b"")
    before = disk.read(path)
    history.partition(ORDERS)
    flips = BitFlips(disk, DATA, history, 100)
    assert flips.flip_record(random.Random(seed), frozenset())
    damaged = disk.read(path)
    changed = [at for at in range(len(before)) if before[at] != damaged[at]]
    assert len(changed) == 1
    offset = changed[0] // (len(before) // 20)
    assert history.partition(ORDERS).is_hidden(offset)
    assert flips.undamaged(path) == before
    assert flips.cut_of(ORDERS) is None
    assert flips.repair_others(usable=())
    assert disk.read(path) == before
    assert history.partition(ORDERS).hidden == []


@pytest.mark.parametrize("seed", range(20))
def test_after_an_unclean_stop_a_flip_has_to_end_the_log(seed: int) -> None:
    disk, history = MemoryDisk(ManualClock()), RecordHistory(Findings())
    path = log_of_batches(disk, 20)
    size = disk.size(path) // 20
    before = disk.read(path)
    history.partition(ORDERS)
    flips = BitFlips(disk, DATA, history, 100)
    assert not flips.flip_record(random.Random(seed), frozenset()), "the topic may lose nothing"
    if not flips.flip_record(random.Random(seed), frozenset({"orders"})):
        return  # the leader epoch, which no checksum covers
    damaged = disk.read(path)
    (changed,) = (at for at in range(len(before)) if before[at] != damaged[at])
    assert flips.cut_of(ORDERS) == changed // size
    assert flips.cut_of(ORDERS) is None, "recovery has removed the damage"
    assert not flips.repair_others(usable=())
