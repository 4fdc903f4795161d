"""A host's page cache that misses requested ranges."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from simulator.machine.page_cache import PageCachedDisk

FILE = Path("/file")


def test_a_range_read_ahead_stays_resident_for_a_while() -> None:
    loop, faults = SimulatedLoop(random.Random(1)), Counter[str]()
    disk = PageCachedDisk(SimulatedClock(loop), random.Random(1), faults)
    file = disk.open(FILE, create=True)
    file.write_at(0, bytes(1000))
    assert disk.is_resident(file, 0, 1000)
    disk.cold = 1.0
    assert not disk.is_resident(file, 0, 1000)
    assert disk.read_resident(file, 0, 10) is None
    assert disk.read_ahead(file, 100, 500)
    assert disk.is_resident(file, 100, 500)
    assert disk.read_resident(file, 200, 10) == bytes(10)
    assert not disk.read_ahead(file, 200, 10)
    assert not disk.is_resident(file, 300, 500)
    loop.call_later(1.0, loop.stop)
    loop.run_forever()
    loop.close()
    assert not disk.is_resident(file, 200, 10)
    assert faults == {"not in the page cache": 4, "read ahead": 2}
