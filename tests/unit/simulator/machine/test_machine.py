"""Machines of one world: each has its own disk and its own wall clock."""

from __future__ import annotations

from pathlib import Path

from simulator.engine.simulator import Simulator
from simulator.machine.machine import Machine

FILE = Path("/file")


def test_a_leap_of_one_wall_clock_leaves_the_other_machine_alone() -> None:
    simulator = Simulator(1)
    one, two = Machine(simulator, "broker-1"), Machine(simulator, "broker-2")
    before = two.clock.wall_ms()
    one.clock.leap(60_000)
    assert one.clock.wall_ms() - before == 60_000
    assert two.clock.wall_ms() == before
    assert one.clock.monotonic() == two.clock.monotonic()
    simulator.loop.close()


def test_disks_are_separate_and_count_into_one_world() -> None:
    simulator = Simulator(1)
    one, two = Machine(simulator, "broker-1"), Machine(simulator, "broker-2")
    for machine in (one, two):
        machine.disk.cold = 1.0
    file = one.disk.open(FILE, create=True)
    file.write_at(0, b"records")
    assert not two.disk.exists(FILE)
    assert not one.disk.is_resident(file, 0, 7)
    assert not two.disk.is_resident(two.disk.open(FILE, create=True), 0, 7)
    assert simulator.faults == {"not in the page cache": 2}
    simulator.loop.close()


def test_page_caches_of_two_machines_evict_different_ranges() -> None:
    simulator = Simulator(1)
    evictions = []
    for name in ("broker-1", "broker-2"):
        disk = Machine(simulator, name).disk
        disk.cold = 0.5
        file = disk.open(FILE, create=True)
        evictions.append([disk.is_resident(file, 0, 7) for _ in range(64)])
    assert evictions[0] != evictions[1]
    simulator.loop.close()
