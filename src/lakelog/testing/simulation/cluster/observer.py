"""The observer of a cluster: checks all replicas and images against each other as they change."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.testing.simulation.brokers.host import BrokerHost
from lakelog.testing.simulation.checkers.findings import Findings
from lakelog.testing.simulation.checkers.laws import Law
from lakelog.testing.simulation.checkers.record_history import RecordHistory
from lakelog.testing.simulation.engine.simulator import Simulator


class ClusterObserver:
    """A `HostObserver` of all brokers."""

    def __init__(self, simulator: Simulator, findings: Findings, records: RecordHistory) -> None:
        self._simulator = simulator
        self._findings = findings
        self._records = records
        self._hosts: Sequence[BrokerHost] = ()

    def watch(self, hosts: Sequence[BrokerHost]) -> None:
        """Observe these brokers."""
        self._hosts = hosts

    def on_started(self, host: BrokerHost) -> None:
        self._simulator.trace("started", host.name, host.disk.steps)

    def on_stopping(self, host: BrokerHost) -> None:
        pass

    def on_death(self, host: BrokerHost, *, power: bool) -> None:
        self._simulator.trace("death", host.name, power, host.disk.steps)

    def on_start_refused(self, host: BrokerHost, error: BaseException) -> None:
        self._simulator.trace("refused", str(error))
        self._findings.violation(Law.STARTS, f"{host.name} does not start: {error}")

    def on_step(self, host: BrokerHost) -> None:
        pass
