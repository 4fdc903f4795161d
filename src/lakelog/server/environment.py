"""Everything outside a broker, as its object graph is given it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from lakelog.metadata.store.api import MetadataStore
from lakelog.metrics.durations import Durations
from lakelog.runtime.api import Clock, Disk, Net, Processes, Random, Tasks


@dataclass(frozen=True, slots=True)
class Environment:
    """The seams of one broker."""

    clock: Clock
    disk: Disk
    net: Net
    tasks: Tasks
    random: Random
    processes: Processes
    metadata: MetadataStore
    """Not yet open."""
    open_files_max: int
    """Of logs; connections and everything else come on top."""
    fsyncs: Durations = field(default_factory=Durations)
    """To which the disk adds, if it tells of them."""
    connections_max: int = sys.maxsize
    """What the descriptors of the process leave to connections of clients."""
