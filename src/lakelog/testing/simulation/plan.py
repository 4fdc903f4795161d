"""What a seed decides before anything runs: who is there, what goes wrong, how the broker is set.

Each seed takes a part of what there is (swarm testing): faults and features that would drown one
another all at once meet in every combination over many seeds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SLOW_DISK = "slow disk"
"""What a broker has its threads do, flushes above all, takes long."""

WORKLOADS = (
    "plain",
    "idempotent",
    "transactions",
    "compaction",
    "classic group",
    "consumer group",
    "static classic members",
    "static consumer members",
    "administration",
    "retention",
)
PRODUCING = ("plain", "idempotent", "transactions", "compaction", "administration", "retention")
"""Workloads with producers whose acknowledgements count."""
DEATHS = ("kill", "kill at a write", "power", "stop")
"""Faults that end a broker's process."""
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
"""Settings that have each record synced before it is acknowledged: any of them does."""
EXPIRATION = "producer.id.expiration.ms"
COLD_READS = "cold reads"
"""The page cache does not hold what is asked for, as chance has it."""

_INTERVAL_MAX = 4096
HARMLESS = frozenset({"clock", "helper death", "client crash", COLD_READS})
"""Faults that keep no client from an answer."""

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
    """`seconds` are of faults, in virtual time; what follows them is peace, and the last look."""

    seconds: float = 40.0
    workloads: frozenset[str] = frozenset(WORKLOADS)
    faults: frozenset[str] = frozenset()
    settings: dict[str, str] = field(default_factory=lambda: dict(_SETTINGS))

    @property
    def is_durable(self) -> bool:
        """Whether each record is synced before it is acknowledged, so that it survives the power.

        Then nothing that a client was told may be missing after a power failure.
        """
        return any(self.settings.get(name) == value for name, value in DURABLE)

    @property
    def index_interval(self) -> int:
        """In bytes; the largest that a topic of this world may have."""
        most = _INTERVAL_MAX if "administration" in self.workloads else 0
        return max(int(self.settings["log.index.interval.bytes"]), most)


def plan_of(seed: int) -> Plan:
    """No plan is thin: some broker dies, and something is produced."""
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
