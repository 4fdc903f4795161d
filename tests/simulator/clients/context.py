"""The surroundings of a simulated client: network, broker, plan, and the histories it writes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from simulator.checkers.findings import Findings
from simulator.checkers.membership_history import MembershipHistory
from simulator.checkers.observations import Place
from simulator.checkers.offset_history import OffsetHistory
from simulator.checkers.producer_ids import ProducerIds
from simulator.checkers.record_history import RecordHistory
from simulator.conditions import Conditions
from simulator.engine.process import Process
from simulator.engine.simulator import Simulator
from simulator.network.connection import PATIENCE_S
from simulator.network.network import Network
from simulator.plan import Plan


class Connection(Protocol):
    """A client's connection to its broker, or its connections to the brokers of its cluster."""

    async def call(self, message: Any, version: int, timeout_s: float = PATIENCE_S) -> Any:
        """Send a request and return the response. Raises `NoResponse`."""

    async def cast(self, message: Any, version: int) -> None:
        """Send a request that has no response (acks=0). Raises `NoResponse`."""

    def close(self) -> None:
        """Close it; requests that wait for a response fail with `NoResponse`."""


class HomeBroker(Protocol):
    """The broker, or the cluster, that a client connects to."""

    @property
    def name(self) -> str: ...
    def connect(
        self, network: Network, process: Process, on_late: Callable[[str, float], None]
    ) -> Connection:
        """Return a connection of a client's process; `on_late` is that of `ClientConnection`."""

    @property
    def thread_s_max(self) -> float:
        """How long offloaded work may take to begin, and its result to arrive, in seconds."""

    def log_ends(self) -> dict[Place, int]:
        """Return the log end offsets, or nothing while the broker is down."""


class Brokers(Protocol):
    """All brokers of the world."""

    @property
    def starts(self) -> int:
        """How many times brokers were started so far."""

    @property
    def removed(self) -> Collection[int]:
        """Node ids of brokers that will not return."""

    def home_of(self, name: str) -> HomeBroker:
        """Return the broker that a client or a group of this name belongs to."""


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Shared by all clients of a world."""

    simulator: Simulator
    network: Network
    plan: Plan
    conditions: Conditions
    findings: Findings
    records: RecordHistory
    offsets: OffsetHistory
    members: MembershipHistory
    producer_ids: ProducerIds
    brokers: Brokers
