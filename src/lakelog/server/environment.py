"""The environment of a broker: clock, disk, network, tasks, and the metadata store."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from lakelog.metadata.store.api import MetadataStore
from lakelog.metrics import Durations
from lakelog.runtime.api import Clock, Disk, Net, Processes, Random, Tasks


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of one broker, which a simulation replaces."""

    clock: Clock
    disk: Disk
    net: Net
    tasks: Tasks
    random: Random
    processes: Processes
    metadata: MetadataStore
    """Not yet open."""
    open_files_max: int
    """Open files of logs; connections and everything else come on top."""
    fsyncs: Durations = field(default_factory=Durations)
    """Durations of fsyncs, which the disk adds."""
    connections_max: int = sys.maxsize
    """Connections of clients for which the process has descriptors."""
