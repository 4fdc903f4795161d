"""The plan of a seed of a cluster: workloads, faults, the metadata store, and settings."""

from __future__ import annotations

import random
from dataclasses import dataclass

from lakelog.metadata.store.api import BATCH_BYTES_MAX
from simulator.plan import CLUSTER_DEATHS, Plan
from simulator.plan import DEATHS as ALONE_DEATHS

BROKERS = 3
BROKERS_MAX = 5
SESSION_S = 3.0
"""The session timeout of brokers."""
ENTRIES_KEPT = 1
"""Entries of the metadata log before a snapshot: a broker that sleeps has to load the snapshot."""
STORES = ("file", "zookeeper")
SMALL_ENTRY_BYTES = 280
"""Size of entries of the metadata log with which most changes are transactions of several."""
MUTE = "mute controller"
NEW_TOPICS = "transactions in new topics"
CLASSIC = "classic transactions"
WORKLOADS = (
    "plain",
    "idempotent",
    "transactions",
    "sinks",
    "classic group",
    "consumer group",
    "static classic members",
    "static consumer members",
    "topics",
    NEW_TOPICS,
    CLASSIC,
)
PRODUCING = ("plain", "idempotent", "transactions", "sinks", CLASSIC)
_OF_CONTROL = ("deposed controller", "stuck marker", "unheard topic")
"""The schedules of `control_schedules.py`."""
LATE_MARKER = "late marker"
LATE_REQUESTS = "late requests"
LATE_ISR = "late ISR"
OUTLIVED = "outlived requests"
NEW_BROKER = "new broker"
REMOVED_BROKER = "removed broker"
OF_MEMBERS = (NEW_BROKER, REMOVED_BROKER)
"""The faults of `member_changes.py`."""
GROWTH = "growth"
"""A workload that puts replicas on new brokers."""
OF_MACHINES = ("disk full", "disk error", "slow recovery", "flipped bit")
"""The faults of `machine_faults.py`."""
SILENT = "silent successor"
LATE_ANSWER = "late answer"
OF_LEADER_EPOCHS = ("earlier leader epoch", "two elections", LATE_ANSWER)
"""The schedules of `leader_epoch_schedules.py`."""
SURVIVABLE = (
    "lagging follower",
    "deposed leader",
    *_OF_CONTROL,
    LATE_MARKER,
    LATE_ISR,
    SILENT,
    *OF_LEADER_EPOCHS,
)
"""Schedules that may end without a death. The others of `schedules.py` are deaths."""
DEATHS = (*ALONE_DEATHS, *CLUSTER_DEATHS)
"""Faults that end processes of brokers."""
_SURVIVED = tuple(name for name in DEATHS if name != "power of all")
FAULTS = (
    *DEATHS,
    "pause",
    "cut brokers",
    "cut store",
    "cut clients",
    "reset",
    "slow network",
    "clock",
    "client crash",
    LATE_REQUESTS,
    MUTE,
    *OF_MACHINES,
    *SURVIVABLE,
    *OF_MEMBERS,
)
_SELDOM = (
    SILENT,
    *OF_LEADER_EPOCHS,
    LATE_MARKER,
    LATE_REQUESTS,
    LATE_ISR,
    OUTLIVED,
    MUTE,
    *OF_MACHINES,
    *OF_MEMBERS,
)
_DRAWN = tuple(name for name in FAULTS if name not in _SELDOM)
_BLACKOUT = "power of all"
"""After it a replica is eligible to lead only with `durability=fsync` (KIP-966)."""

_SETTINGS = {
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": str(BROKERS),
    "replica.lag.time.max.ms": "2000",
    "transaction.state.log.replication.factor": str(BROKERS),
}

_DURABLE = {"log.durability": "fsync"}


@dataclass(slots=True)
class ClusterPlan(Plan):
    """A plan of several brokers with one metadata store."""

    replicas: int = BROKERS
    brokers: int = BROKERS
    """At the begin of the world."""
    store: str = "zookeeper"
    entry_bytes_max: int = SMALL_ENTRY_BYTES

    @property
    def is_durable(self) -> bool:
        """Whether a power failure takes no acknowledged record from any broker."""
        return self.settings.items() >= _DURABLE.items()

    def __post_init__(self) -> None:
        self.settings.update(_SETTINGS)


_LATER_FAULTS = (
    (OUTLIVED, 0.15),
    (MUTE, 0.1),
    (SILENT, 0.1),
    ("slow recovery", 0.15),
    ("flipped bit", 0.2),
    ("disk full", 0.15),
    ("earlier leader epoch", 0.1),
    ("two elections", 0.1),
)
LATER_WORKLOADS = (
    ("reconfiguration", 0.15),
    ("administration", 0.1),
    ("compaction", 0.1),
    ("retention", 0.1),
    ("many partitions", 0.04),
)
"""Workloads with their chances, which go with any of `WORKLOADS`."""
_LAST_FAULTS = (("disk error", 0.1), (LATE_ANSWER, 0.1))
"""Names with their chances."""
_GROWS = 0.2
_SHRINKS = 0.6
"""Of the plans that grow."""


def cluster_plan_of(seed: int) -> ClusterPlan:
    """Return the plan of a seed; a broker dies in each, and clients produce to it."""
    rng = random.Random(f"{seed} cluster plan")
    workloads = set(rng.sample(WORKLOADS, rng.choice((1, 1, 2))))
    faults = {name for name in _DRAWN if rng.random() < (0.15 if name in _OF_CONTROL else 0.35)}
    if "unheard topic" in faults:
        workloads.add(NEW_TOPICS)
    if "stuck marker" in faults:
        workloads.add(CLASSIC)
    if workloads.isdisjoint(PRODUCING):
        workloads.add(rng.choice(PRODUCING))
    has_blackout = _BLACKOUT in faults
    faults.discard(_BLACKOUT)
    if faults.isdisjoint(DEATHS):
        faults.add(rng.choice(_SURVIVED))
    store = rng.choice(STORES)
    plan = ClusterPlan(
        6.0 + rng.random() * 12.0,
        frozenset(workloads),
        frozenset(faults),
        store=store,
    )
    if store == "file":
        plan.faults -= {"cut store"}  # the brokers of one host
    if rng.random() < 0.3:
        plan.settings.update(_DURABLE)
        if has_blackout:
            plan.faults |= {_BLACKOUT}
    plan.entry_bytes_max = rng.choice((SMALL_ENTRY_BYTES, BATCH_BYTES_MAX))
    # Longer than a session: a broker that sleeps is fenced. Shorter: it leaves the ISR first.
    plan.settings["replica.lag.time.max.ms"] = rng.choice(("1500", "4000"))
    _add_later_parts(plan, rng)
    return plan


def _add_later_parts(plan: ClusterPlan, rng: random.Random) -> None:
    """Add faults and workloads that are drawn last, so that they change no other draw."""
    if rng.random() < 0.35:
        plan.faults |= {LATE_REQUESTS}
    if rng.random() < 0.15:
        plan.faults |= {LATE_MARKER}
        plan.workloads |= {CLASSIC}
    if rng.random() < 0.15:
        plan.faults |= {LATE_ISR}
    plan.faults |= {name for name, chance in _LATER_FAULTS if rng.random() < chance}
    plan.workloads |= {name for name, chance in LATER_WORKLOADS if rng.random() < chance}
    plan.faults |= {name for name, chance in _LAST_FAULTS if rng.random() < chance}
    if rng.random() < _GROWS:
        plan.workloads |= {GROWTH}
        plan.faults |= {NEW_BROKER}
        if rng.random() < _SHRINKS:
            plan.faults |= {REMOVED_BROKER}
