"""A simulated machine: a name on the network, a clock, and a disk with a page cache."""

from __future__ import annotations

from simulator.engine.clock import SimulatedClock
from simulator.engine.simulator import Simulator
from simulator.machine.page_cache import PageCachedDisk


class Machine:
    """It outlives the processes that run on it."""

    def __init__(self, simulator: Simulator, name: str) -> None:
        self.name = name
        self.clock = SimulatedClock(simulator.loop)
        self.disk = PageCachedDisk(
            self.clock, simulator.random_stream(f"{name} page cache"), simulator.faults
        )
