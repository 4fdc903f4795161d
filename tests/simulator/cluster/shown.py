"""The law about health and metrics: nothing looks healthy that cannot be written.

A partition that has acknowledged nothing for too long is a problem in the Metadata of each broker,
in `lakelog cluster health`, whichever broker it asks, and in the metrics of some broker that runs.
A broker that the cluster has fenced is not ready, whether it knows that or not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from lakelog.cli.partition_health import problem_of
from lakelog.client.view import Partition
from lakelog.server.app import Server
from simulator.brokers.host import BrokerHost
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place

_SHOWN_S = 1.0
"""In which a broker shows that a partition cannot be written."""
_UNREADY_S = 2.0
"""In which a fenced broker that runs is not ready."""
_METRICS = "the metrics"
_ALARMS = ("leaderless_partitions", "under_min_isr_partitions", "offline_partitions")
"""Metrics above 0 while a partition cannot be written (docs/cluster.md, "Watch")."""


class Shown:
    """Judges health and metrics of the brokers at the times of the calls, in seconds of the loop.

    Args:
        min_isr: min.insync.replicas of all partitions.
        fenced: returns the fenced brokers by the newest metadata.
    """

    def __init__(
        self,
        findings: Findings,
        hosts: Sequence[BrokerHost],
        min_isr: int,
        fenced: Callable[[], Collection[int]],
    ) -> None:
        self._findings = findings
        self._hosts = hosts
        self._min_isr = min_isr
        self._fenced = fenced
        self._wrong_since: dict[Hashable, float] = {}

    def see_partition(
        self, host: BrokerHost, partition: Place, row: Any, silent_s: float, now: float
    ) -> None:
        """Check how a partition is shown that cannot be written.

        Args:
            host: a broker that no fault touches.
            row: the partition in its response to Metadata.
            silent_s: since when it has acknowledged nothing.
        """
        self._findings.counts["partitions that cannot be written"] += 1
        is_shown = _problem_of(row, self._min_isr) is not None
        self._expect(host.name, partition, is_shown, silent_s, now)
        self._expect(_METRICS, partition, self._is_counted, silent_s, now)

    def see_health(
        self,
        host: BrokerHost,
        partition: Place,
        health: Mapping[str, Any],
        silent_s: float,
        now: float,
    ) -> None:
        """Check how `cluster health`, asked at a broker, shows a partition that cannot be written.

        Args as `see_partition`, and health: the JSON of the command.
        """
        self._findings.counts["healths of partitions that cannot be written"] += 1
        listed = [(row["topic"], row["partition"]) for row in health["partitions"]]
        is_shown = partition in listed and not health["is_healthy"]
        self._expect(_health_by(host), partition, is_shown, silent_s, now)

    def _expect(
        self, by: str, partition: Place, is_shown: bool, silent_s: float, now: float
    ) -> None:
        since = self._since((by, partition), is_wrong=not is_shown, now=now)
        text = f"{partition}, which has acknowledged nothing for {silent_s:.1f} s at {now:.1f}"
        self._findings.expect(Law.SHOWN, now - since <= _SHOWN_S, f"no problem by {by} of {text}")

    def excuse(self, host: BrokerHost, partition: Place) -> None:
        """Note that a partition can be written, or that a fault touches the broker."""
        self._wrong_since.pop((host.name, partition), None)
        self._wrong_since.pop((_METRICS, partition), None)
        self._wrong_since.pop((_health_by(host), partition), None)

    def see_brokers(self, now: float) -> None:
        """Check that no fenced broker is ready."""
        fenced = self._fenced()
        for host in self._hosts:
            is_wrong = host.node_id in fenced and _is_ready(host)
            # A process that starts again has a time of its own.
            since = self._since((host.name, host.starts), is_wrong=is_wrong, now=now)
            self._findings.expect(
                Law.SHOWN,
                now - since <= _UNREADY_S,
                f"{host.name} is ready at {now:.1f}, and fenced since {since:.1f} at least",
            )

    @property
    def _is_counted(self) -> bool:
        servers = [server for host in self._hosts if (server := _answering(host)) is not None]
        return any(each.monitoring.cluster_numbers()[name] for each in servers for name in _ALARMS)

    def _since(self, subject: Hashable, *, is_wrong: bool, now: float) -> float:
        if not is_wrong:
            self._wrong_since.pop(subject, None)
            return now
        return self._wrong_since.setdefault(subject, now)


def _health_by(host: BrokerHost) -> str:
    return f"cluster health at {host.name}"


def _is_ready(host: BrokerHost) -> bool:
    server = _answering(host)
    return server is not None and all(check.passes for check in server.monitoring.checks())


def _answering(host: BrokerHost) -> Server | None:
    """Return the server of a process that serves and is not paused."""
    process = host.process
    return host.server if process is not None and not process.is_paused else None


def _problem_of(row: Any, min_isr: int) -> str | None:
    partition = Partition(
        row.partition_index,
        row.leader_id,
        row.leader_epoch,
        tuple(row.replica_nodes),
        tuple(row.isr_nodes),
        tuple(row.offline_replicas),
    )
    return problem_of(partition, min_isr)
