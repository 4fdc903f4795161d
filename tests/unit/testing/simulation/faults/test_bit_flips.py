"""Records that a flipped bit may hide."""

from __future__ import annotations

import random
from pathlib import Path

from lakelog.records.batch import patch_offset_and_epoch
from lakelog.records.builder import BatchBuilder
from lakelog.storage.folder.ownership import CLEAN_SHUTDOWN
from lakelog.testing.disk import MemoryDisk
from lakelog.testing.simulation.checkers.findings import Findings
from lakelog.testing.simulation.checkers.record_history import RecordHistory
from lakelog.testing.simulation.faults.bit_flips import BitFlips
from storage_kit import ManualClock

DATA = Path("/data")
PLACE = ("state", 0)


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
    damages = BitFlips(disk, DATA, history, 4096)
    for seed in range(5):
        while not damages.flip_record(random.Random(seed), frozenset()):
            seed += 100
        assert history.partition(PLACE).is_hidden(0)
        damages.repair_others(())
