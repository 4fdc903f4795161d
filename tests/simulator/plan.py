"""The plan of a seed: workloads, faults and the broker's settings.

Each seed takes a random subset of workloads and faults (swarm testing, Groce et al. 2012). All of
them at once would mask one another; over many seeds every combination occurs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SLOW_DISK = "slow disk"
"""Work in threads, flushes above all, takes long."""

WORKLOADS = (
    "plain",
    "idempotent",
    "transactions",
    "sinks",
    "compaction",
    "classic group",
    "consumer group",
    "static classic members",
    "static consumer members",
    "administration",
    "retention",
)
PRODUCING = (
    "plain",
    "idempotent",
    "transactions",
    "sinks",
    "compaction",
    "administration",
    "retention",
)
"""Workloads with producers whose acknowledgements count."""
DEATHS = ("kill", "kill at a write", "power", "stop")
"""Faults that end a broker's process."""
CLUSTER_DEATHS = (
    "controller",
    "power of all",
    "wipe",
    "two down",
    "return into a cut",
    "missed snapshot",
    "outlived requests",
)
"""Faults that end processes of brokers in a cluster only."""
FAULTS = (
    "kill",
    "kill at a write",
    "power",
    "stop",
    "reset",
    "partition",
    "slow network",
    "disk full",
    "disk error",
    SLOW_DISK,
    "clock",
    "flipped bit",
    "flipped record",
    "helper death",
    "client crash",
    "metadata",
)

DURABLE = (("log.flush.interval.messages", "1"), ("log.durability", "fsync"))
"""Settings each of which has every record synced before it is acknowledged."""
EXPIRATION = "producer.id.expiration.ms"
COLD_READS = "cold reads"
"""Requested ranges are sometimes not in the page cache."""

_INTERVAL_MAX = 4096
HARMLESS = frozenset({"clock", "helper death", "client crash", COLD_READS})
"""Faults that delay no response."""

_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "4000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "log.cleaner.backoff.ms": "3000",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.cleaner.dedupe.buffer.size": "1048577",
    "log.index.interval.bytes": "200",
    "log.retention.check.interval.ms": "5000",
    "offsets.topic.num.partitions": "2",
    EXPIRATION: "86400000",
    "producer.id.expiration.check.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "5000",
    "transaction.state.log.num.partitions": "2",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "10000",
}


@dataclass(slots=True)
class Plan:
    """The time of faults in virtual `seconds`, the workloads, the faults, and broker settings."""

    seconds: float = 40.0
    workloads: frozenset[str] = frozenset(WORKLOADS)
    faults: frozenset[str] = frozenset()
    settings: dict[str, str] = field(default_factory=lambda: dict(_SETTINGS))
    replicas: int = 1
    """The replication factor of all topics."""

    @property
    def is_durable(self) -> bool:
        """Whether each record is synced before it is acknowledged.

        Acknowledged records then survive a power failure.
        """
        return any(self.settings.get(name) == value for name, value in DURABLE)

    @property
    def index_interval(self) -> int:
        """The largest index.interval.bytes of a topic in this world."""
        most = _INTERVAL_MAX if "administration" in self.workloads else 0
        return max(int(self.settings["log.index.interval.bytes"]), most)


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed; a broker dies in each, and clients produce to it."""
    rng = random.Random(f"{seed} plan")
    workloads = set(rng.sample(WORKLOADS, rng.choice((1, 1, 2, 3))))
    faults = {name for name in FAULTS if rng.random() < 0.35}
    if workloads.isdisjoint(PRODUCING):
        workloads.add(rng.choice(PRODUCING))
    if faults.isdisjoint(DEATHS):
        faults.add(rng.choice(DEATHS))
    plan = Plan(8.0 + rng.random() * 20.0, frozenset(workloads), frozenset(faults))
    if "power" in faults and rng.random() < 0.6:
        plan.settings.update([rng.choice(DURABLE)])
    if rng.random() < 0.35:
        plan.faults |= {COLD_READS}
    if rng.random() < 0.1:
        plan.settings[EXPIRATION] = rng.choice(("1000", "5000", "60000"))
        plan.faults |= {"clock"}
    return plan
