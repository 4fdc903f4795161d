"""The place of the metadata of a broker that is a cluster by itself."""

from __future__ import annotations

from doubles.disk import MemoryDisk
from doubles.sqlite_metadata import SimulatedMetadata, SimulatedStore
from lakelog.metadata.store.embedded import METADATA_FILE
from lakelog.runtime.api import Random, Tasks
from simulator.brokers.host import DATA
from simulator.engine.process import Process


class OwnPlace:
    """A `MetadataPlace` in the broker's own data folder."""

    location = None

    def __init__(self, disk: MemoryDisk) -> None:
        self._metadata = SimulatedMetadata(disk, DATA / METADATA_FILE)

    def handle(self, tasks: Tasks, chance: Random, process: Process) -> SimulatedStore:
        return self._metadata.handle(tasks, lambda: process.alive)
