"""The pause of acknowledged writes when a broker of three is killed.

A producer of confluent-kafka sends a record to one partition every few milliseconds, with all
acknowledgements. The broker that leads the partition, the broker that controls the cluster, or one
broker that does both is killed by `kill -9`. The pause is the longest time between two
acknowledgements from the kill until the producer is served steadily again. Then the killed broker
starts and joins the ISR, before the next kill. The program prints its measurements and passes no
judgement.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise, takewhile
from pathlib import Path

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from benchmark import Benchmark  # noqa: E402
from brokers import BrokerError  # noqa: E402
from clusters import CLUSTERS, SIZE, Cluster  # noqa: E402
from confluent_kafka import ElectionType, KafkaError, KafkaException, Message, Producer  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from rounds import note  # noqa: E402
from tables import Table  # noqa: E402

_TOPIC = "failover"
_INTERVAL_S = 0.005
_STEADY_S, _STEADY_PAUSE_S = 1.0, 0.25
"""A producer is served steadily if no pause of a second is longer."""
_POLL_S = 0.2
_LIMIT_S = 60.0
VICTIMS = ("leader", "controller", "both")
_COLUMNS = ("killed", "cluster", "kills", "p50 s", "p90 s", "p99 s", "longest s")


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/failover.py", description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="of each kind")
    parser.add_argument(
        "--victim", choices=VICTIMS, nargs="+", default=VICTIMS, help="the brokers to kill"
    )
    parser.add_argument(
        "--cluster", choices=CLUSTERS, nargs="+", default=["lakelog"], help="measured ones"
    )
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


class _Load:
    """A producer, and the times of its acknowledgements."""

    def __init__(self, cluster: Cluster, partition: int) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0}
        self._producer = Producer({**settings, "enable.idempotence": True})
        self._partition = partition
        self._sent = 0
        self._acknowledged_at: list[float] = []

    def send_until_steady(self, since: float) -> None:
        """Send until a steady time after `since`, of the monotonic clock."""
        while not self._is_steady(since):
            if time.monotonic() > since + _LIMIT_S:
                raise BrokerError(f"no steady acknowledgements within {_LIMIT_S:.0f} s")
            self._producer.produce(
                _TOPIC, bytes(100), partition=self._partition, on_delivery=self._on_delivery
            )
            self._sent += 1
            self._producer.poll(_INTERVAL_S)

    def finish(self) -> None:
        """Wait for the last acknowledgements; every record must get one."""
        self._producer.flush(_LIMIT_S)
        missing = self._sent - len(self._acknowledged_at)
        if missing:
            raise BrokerError(f"{missing} records were not acknowledged")

    def longest_pause(self, since: float) -> float:
        """Return the longest time between two acknowledgements, the later one after `since`."""
        times = self._acknowledged_at
        return max(later - at for at, later in pairwise(times) if later > since)

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._acknowledged_at.append(time.monotonic())

    def _is_steady(self, since: float) -> bool:
        now = time.monotonic()
        begin = now - _STEADY_S
        if begin < since:
            return False
        recent = takewhile(lambda at: at > begin, reversed(self._acknowledged_at))
        return all(a - b < _STEADY_PAUSE_S for a, b in pairwise((now, *recent, begin)))


class _Failovers:
    """One topic of a running cluster, and the kills of its brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        config = {"min.insync.replicas": "2"}
        topic = NewTopic(_TOPIC, SIZE, replication_factor=SIZE, config=config)
        self._admin.create_topics([topic])[_TOPIC].result(_LIMIT_S)

    def kill_once(self, victim: str) -> float:
        """Return the pause in seconds; every replica is in sync before and after."""
        self._await_full()
        partition, node_id = self._choose(victim)
        load, broker = _Load(self._cluster, partition), self._cluster.brokers[node_id - 1]
        load.send_until_steady(time.monotonic())
        killed_at = time.monotonic()
        broker.kill()
        load.send_until_steady(killed_at)
        load.finish()
        broker.start()
        return load.longest_pause(killed_at)

    def _choose(self, victim: str) -> tuple[int, int]:
        """Return a partition and the broker to kill."""
        metadata = self._admin.list_topics(_TOPIC, timeout=_LIMIT_S)
        controller = metadata.controller_id
        for index, partition in metadata.topics[_TOPIC].partitions.items():
            if (partition.leader == controller) == (victim == "both"):
                return index, controller if victim == "controller" else partition.leader
        raise BrokerError(f"no partition whose leader makes the kill of {victim} possible")

    def _await_full(self) -> None:
        """Wait until each broker leads the partition that prefers it, with all replicas in sync."""
        deadline = time.monotonic() + _LIMIT_S
        while not self._is_full():
            if time.monotonic() > deadline:
                raise BrokerError(f"no full ISR within {_LIMIT_S:.0f} s after a start")
            time.sleep(_POLL_S)

    def _is_full(self) -> bool:
        topic = self._admin.list_topics(_TOPIC, timeout=_LIMIT_S).topics[_TOPIC]
        partitions = topic.partitions.values()
        if len(partitions) < SIZE or any(len(each.isrs) < SIZE for each in partitions):
            return False
        if all(each.leader == each.replicas[0] for each in partitions):
            return True
        with suppress(KafkaException):
            self._admin.elect_leaders(ElectionType.PREFERRED).result(_LIMIT_S)
        return False


def _row(victim: str, cluster: Cluster, pauses: list[float]) -> list[str]:
    ordered = sorted(pauses)
    figures = [ordered[math.ceil(part * len(ordered)) - 1] for part in (0.5, 0.9, 0.99, 1.0)]
    return [victim, cluster.name, str(len(pauses)), *(f"{figure:.2f}" for figure in figures)]


def _measure(options: argparse.Namespace, folder: Path) -> Iterator[Table]:
    rows = []
    for kind in options.cluster:
        cluster = CLUSTERS[kind](folder / kind)
        try:
            cluster.start()
            failovers = _Failovers(cluster)
            for victim in options.victim:
                pauses = []
                for number in range(1, options.kills + 1):
                    pauses.append(failovers.kill_once(victim))
                    note(f"{cluster.name}, {victim}, kill {number}: {pauses[-1]:.2f} s")
                rows.append(_row(victim, cluster, pauses))
        finally:
            cluster.stop()
    yield Table(_COLUMNS, rows, len(options.victim))


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)

    def about() -> str:
        return (
            f"The longest pause between two acknowledgements around a `kill -9`; {SIZE} brokers, "
            f"{SIZE} replicas, acks=all, min.insync.replicas=2, confluent-kafka."
        )

    return Benchmark("failover", "failover", about).run(
        argv, options, lambda folder: _measure(options, folder)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
