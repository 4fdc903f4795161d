"""The parts of a broker that metrics are read from."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakelog.metrics import Durations
from lakelog.runtime.api import Processes
from lakelog.server.broker import Broker
from lakelog.server.inter_broker.watch import PeerWatch
from lakelog.server.monitoring.lag import LagClock
from lakelog.server.monitoring.loop_watch import LoopWatch
from lakelog.server.replication.replica_manager import RoleChanges
from lakelog.server.requests.dispatch import Dispatcher
from lakelog.server.upkeep.cleaner import Cleaner


@dataclass(slots=True)
class Sources:
    """The parts of one broker; `cleaner` is None until the broker accepts connections."""

    broker: Broker
    dispatcher: Dispatcher
    loop: LoopWatch
    fsyncs: Durations
    processes: Processes
    peers: PeerWatch
    role_changes: RoleChanges
    cleaner: Cleaner | None = None
    lag_clock: LagClock = field(default_factory=LagClock)
