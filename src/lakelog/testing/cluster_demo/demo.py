"""The story: start, kill the leader, the controller and a ZooKeeper server, and count.

Each fault waits until all replicas are in sync again; the gap that it caused is the longest time in
which a partition had no acknowledged write.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lakelog.base.errors import KafkaError
from lakelog.cli.local_cluster.ensemble import ZooKeeperEnsemble
from lakelog.testing.brokers import BrokerError, Cluster, Setting, cluster
from lakelog.testing.cluster_demo.load import (
    Fault,
    Load,
    examine,
    longest_gap,
    stored_records,
    table,
)

TOPIC, PARTITIONS = "demo", 6
_STEADY_S = 3.0
_SESSION_TIMEOUT_MS = 1500
_SETTLE_TIMEOUT_S = 120.0
_RETRY_S = 0.05


class Demo:
    """One run on a cluster and its ensemble.

    Args:
        steady_s: seconds of undisturbed load before each fault.
    """

    def __init__(
        self, brokers: Cluster, ensemble: ZooKeeperEnsemble, *, steady_s: float = _STEADY_S
    ) -> None:
        self._cluster = brokers
        self._ensemble = ensemble
        self._steady_s = steady_s
        self._load = Load(brokers.bootstrap_servers, TOPIC, PARTITIONS)
        self._faults: list[Fault] = []

    def run(self) -> bool:
        """Run all faults under load; return whether every acknowledged record is there once."""
        self._load.start()
        try:
            self._say(f"load starts: idempotent producer, acks=all, {PARTITIONS} partitions")
            self._inject(self._kill_leader)
            self._inject(self._kill_controller)
            self._inject(self._kill_zookeeper_server)
            time.sleep(self._steady_s)
        finally:
            self._load.stop()
        self._say("load ends")
        return self._judge()

    def _inject(self, fault: Callable[[], tuple[str, Callable[[], None]]]) -> None:
        """Inject a fault, repair it after some time, and wait for the replicas."""
        time.sleep(self._steady_s)
        begin_s = self._load.now_s
        text, repair = fault()
        time.sleep(self._steady_s)
        moments = [(record.partition, record.moment_s) for record in self._load.acknowledged]
        gap = longest_gap(moments, begin_s, self._load.now_s)
        if gap is not None:
            self._say(f"  longest gap until now: {gap.length_s:.2f} s in partition {gap.partition}")
        repair()
        self._cluster.await_in_sync(_SETTLE_TIMEOUT_S)
        self._say("  repaired: all replicas are in sync")
        self._faults.append(Fault(text, begin_s, self._load.now_s))

    def _kill_leader(self) -> tuple[str, Callable[[], None]]:
        """Kill the leader of a partition, if possible not the controller."""
        controller = self._controller()
        leaders = [self._leader(index) for index in range(PARTITIONS)]
        node_id = next((leader for leader in leaders if leader != controller), leaders[0])
        led = leaders.count(node_id)
        return self._kill_broker(node_id, f"kill -9 broker {node_id}, leader of {led} partitions")

    def _kill_controller(self) -> tuple[str, Callable[[], None]]:
        node_id = self._controller()
        return self._kill_broker(node_id, f"kill -9 broker {node_id}, the controller")

    def _controller(self) -> int:
        return _await_node_id(lambda: self._cluster.controller_id, "the cluster has no controller")

    def _leader(self, index: int) -> int:
        return _await_node_id(
            lambda: self._cluster.leader_id(TOPIC, index), f"{TOPIC}-{index} has no leader"
        )

    def _kill_broker(self, node_id: int, text: str) -> tuple[str, Callable[[], None]]:
        self._say(text)
        self._cluster.brokers[node_id].kill()

        def repair() -> None:
            controller = self._controller()
            self._say(f"  start broker {node_id} again; the controller is broker {controller}")
            self._cluster.brokers[node_id].start()

        return text, repair

    def _kill_zookeeper_server(self) -> tuple[str, Callable[[], None]]:
        text = "kill -9 ZooKeeper server 1"
        self._say(text)
        self._ensemble.kill(1)

        def repair() -> None:
            self._say("  start ZooKeeper server 1 again")
            self._ensemble.start(1)
            self._ensemble.wait_for(1)

        return text, repair

    def _judge(self) -> bool:
        acknowledged = self._load.acknowledged
        moments = [(record.partition, record.moment_s) for record in acknowledged]
        gaps = [longest_gap(moments, fault.begin_s, fault.end_s) for fault in self._faults]
        verdict = examine(
            acknowledged, stored_records(self._cluster.bootstrap_servers, TOPIC, PARTITIONS)
        )
        _write(f"\n{table(self._faults, gaps)}\n")
        _write(f"sent            {self._load.sent:>8,}")
        _write(f"acknowledged    {verdict.acknowledged:>8,}")
        _write(f"given up        {self._load.failed:>8,}")
        _write(f"in the topic    {verdict.stored:>8,}")
        _write(f"missing         {verdict.missing:>8,}")
        _write(f"twice           {verdict.repeated:>8,}")
        _write(f"out of order    {verdict.reordered:>8,}")
        _write(f"at other offset {verdict.misplaced:>8,}")
        holds = verdict.holds and verdict.acknowledged > 0
        _write("\nNothing acknowledged is missing." if holds else "\nFAILED")
        return holds

    def _say(self, text: str) -> None:
        _write(f"{self._load.now_s:6.1f} s  {text}")


def run_demo(folder: Path, *, steady_s: float = _STEADY_S) -> bool:
    """Run the whole demo with processes of its own; return whether nothing was lost.

    folder: for all data. Raises `EnsembleError` and `BrokerError`.
    """
    _write("Starting three ZooKeeper servers and three brokers ...")
    with ZooKeeperEnsemble(folder / "zookeeper") as ensemble:
        settings: dict[str, Setting] = {
            "lakelog.metadata.store": f"zookeeper://{','.join(ensemble.servers)}/demo",
            "broker.session.timeout.ms": _SESSION_TIMEOUT_MS,
        }
        with cluster({TOPIC: PARTITIONS}, settings=settings, folder=folder / "brokers") as brokers:
            brokers.await_in_sync()
            _write(f"Brokers: {brokers.bootstrap_servers}; 3 replicas, min.insync.replicas=2\n")
            return Demo(brokers, ensemble, steady_s=steady_s).run()


def _await_node_id(read: Callable[[], int], missing: str) -> int:
    """Return the node id once there is one: it is -1 during an election. Raises `BrokerError`."""
    deadline = time.monotonic() + _SETTLE_TIMEOUT_S
    while time.monotonic() < deadline:
        # A broker that ends or starts, or a change of the controller, is an error of the request.
        with suppress(KafkaError):
            if (node_id := read()) >= 0:
                return node_id
        time.sleep(_RETRY_S)
    raise BrokerError(f"{missing} after {_SETTLE_TIMEOUT_S:g} s")


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
