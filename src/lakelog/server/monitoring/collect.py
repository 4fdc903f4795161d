"""Reads the counts of a broker's parts and names them as in `families`.

Each function yields lines. A few thousand take milliseconds, so the caller yields to the loop
now and then; everything that may change meanwhile is copied first.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from lakelog import __version__
from lakelog.base.errors import ErrorCode
from lakelog.metrics import Sample, exposed, exposed_durations
from lakelog.replica.partition import Partition
from lakelog.runtime.api import ProcessUsage
from lakelog.server.broker import Broker
from lakelog.server.inter_broker.watch import PeerWatch, Reach
from lakelog.server.monitoring.families import OVERVIEW
from lakelog.server.monitoring.readiness import Check
from lakelog.server.monitoring.sources import Sources
from lakelog.server.requests.dispatch import Dispatcher
from lakelog.server.topics.responses import Availability
from lakelog.server.upkeep.cleaner import Cleaner
from lakelog.server.upkeep.shortages import DESCRIPTORS, SPACE

_SOFTWARE_MAX = 20
_OTHERS = "other"
_UNKNOWN = "unknown"


def overview(sources: Sources, checks: Iterable[Check]) -> Iterator[str]:
    """Yield the lines of /metrics, without the aliases.

    Raises nothing for a process that cannot be measured: its lines are left out.
    """
    broker = sources.broker
    sources.fsyncs.fold()
    broker.requests.fold()
    ready = all(check.passes for check in checks)
    build = (__version__, platform.python_version(), broker.cluster_id)
    yield from exposed(OVERVIEW["build_info"], [(build, 1)])
    yield from _single("ready", int(ready))
    yield from _requests(broker)
    yield from _connections(sources.dispatcher)
    yield from _peers(sources.peers)
    yield from _waits(broker)
    yield from _topics(broker)
    yield from _cluster(sources)
    yield from _groups(sources)
    yield from exposed_durations(OVERVIEW["fsync_duration_seconds"], [((), [sources.fsyncs])])
    yield from exposed_durations(OVERVIEW["event_loop_lag_seconds"], [((), [sources.loop.lag])])
    yield from _single("event_loop_longest_callback_seconds", sources.loop.longest_callback_s)
    if sources.cleaner is not None:
        yield from _cleaner(sources.cleaner)
    with suppress(OSError):  # without descriptors, for example; the other metrics show that
        yield from _process(sources.processes.usage())


def _single(name: str, number: float) -> Iterator[str]:
    return exposed(OVERVIEW[name], [((), number)])


def _process(usage: ProcessUsage) -> Iterator[str]:
    yield from _single("process_cpu_seconds_total", usage.cpu_s)
    yield from _single("process_resident_memory_bytes", usage.resident_bytes)
    yield from _single("process_virtual_memory_bytes", usage.virtual_bytes)
    yield from _single("process_open_fds", usage.open_fds)
    yield from _single("process_max_fds", usage.fds_max)
    yield from _single("process_start_time_seconds", usage.start_time_s)


def _requests(broker: Broker) -> Iterator[str]:
    requests = broker.requests
    rows = [((api,), parts) for api, parts in requests.seen()]
    yield from exposed_durations(OVERVIEW["request_duration_seconds"], rows)
    errors = sorted(requests.errors.items())
    samples = [((api, ErrorCode(code).name), count) for (api, code), count in errors]
    yield from exposed(OVERVIEW["request_errors_total"], samples)


def _connections(dispatcher: Dispatcher) -> Iterator[str]:
    """Yield the lines of connections.

    Clients choose their names freely, so only the most frequent ones have a label: each label is
    a time series of its own in Prometheus.
    """
    connections = dispatcher.connections
    software: Counter[str] = Counter(
        connection.session.client_software or _UNKNOWN for connection in connections
    )
    common = dict(software.most_common(_SOFTWARE_MAX))
    others = software.total() - sum(common.values())
    if others:
        common[_OTHERS] = common.get(_OTHERS, 0) + others
    samples = [((name,), count) for name, count in sorted(common.items())]
    yield from exposed(OVERVIEW["connections"], samples)
    yield from _single("connections_refused_total", connections.refused)
    yield from _single("connections_closed_total", connections.closings.closed)
    yield from _single("connections_expired_total", connections.closings.expired)
    memory = connections.memory
    yield from _single("request_memory_bytes", memory.share.used)
    yield from _single("request_memory_limit_bytes", memory.share.bytes_max)
    yield from _single("request_memory_waiting", len(memory.waiting))
    yield from _single("waiting_requests_bytes", dispatcher.waiting.total)
    yield from _single("unread_responses_bytes", connections.unread.total)


def _peers(peers: PeerWatch) -> Iterator[str]:
    counts = peers.counts()
    samples = [((reach.value,), counts[reach]) for reach in Reach]
    yield from exposed(OVERVIEW["peers"], samples)


def _waits(broker: Broker) -> Iterator[str]:
    yield from _single("parked_requests", len(broker.purgatory))
    yield from _single("fetch_sessions", len(broker.fetch_sessions))
    yield from _single("fetch_session_memory_bytes", broker.fetch_sessions.memory)
    yield from _single("fetch_session_evictions_total", broker.fetch_sessions.evicted)


def _topics(broker: Broker) -> Iterator[str]:
    partitions = list(broker.partitions)
    size, free = broker.disk_space()
    yield from _single("topics", len(broker.image.topic_ids))
    short = [((name,), int(name in broker.shortages.reasons)) for name in (SPACE, DESCRIPTORS)]
    yield from exposed(OVERVIEW["shortage"], short)
    yield from _single("disk_size_bytes", size)
    yield from _single("disk_free_bytes", free)
    by_topic: dict[str, list[Partition]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    yield from _traffic(sorted(by_topic.items()))


def _cluster(sources: Sources) -> Iterator[str]:
    for name, number in cluster_numbers(sources).items():
        yield from _single(name, number)
    elections = sources.broker.controller.elections
    elections.fold()
    yield from exposed_durations(OVERVIEW["election_duration_seconds"], [((), [elections])])


def cluster_numbers(sources: Sources) -> dict[str, int]:
    """Return the counts of replicas, ISRs, leaders and brokers, by their names in `OVERVIEW`."""
    broker, changes = sources.broker, sources.role_changes
    image, led = broker.image, [partition for partition in broker.partitions if partition.serves]
    leader = Availability.of(broker.node_id, broker.image, broker.partitions).leader
    partitions = [
        (topic.topic_id, partition)
        for topic in image.topics
        for partition in topic.partitions.values()
    ]
    return {
        "partitions": len(broker.partitions),
        "led_partitions": len(led),
        "offline_partitions": len(broker.partitions.offline()),
        "under_replicated_partitions": sum(partition.is_under_replicated for partition in led),
        "under_min_isr_partitions": sum(partition.is_under_min_isr for partition in led),
        "leaderless_partitions": sum(leader(*partition)[0] < 0 for partition in partitions),
        "offline_replicas": sum(len(partition.offline) for _, partition in partitions),
        "replica_lag_records_max": max((partition.replica_lag for partition in led), default=0),
        "isr_shrinks_total": changes.isr_shrinks,
        "isr_expansions_total": changes.isr_expansions,
        "leader_elections_total": changes.elections,
        "active_controller": int(broker.metadata.controller_id == broker.node_id),
        "registered_brokers": len(image.brokers),
        "fenced_brokers": len(image.fenced),
    }


def _traffic(topics: list[tuple[str, list[Partition]]]) -> Iterator[str]:
    def summed(name: str, number: Callable[[Partition], int]) -> Iterator[str]:
        samples = (((topic,), sum(map(number, all_of))) for topic, all_of in topics)
        return exposed(OVERVIEW[name], samples)

    yield from summed("produce_bytes_total", lambda p: p.written.bytes)
    yield from summed("fetch_bytes_total", lambda p: p.fetched_bytes)
    records: Iterator[Sample] = (
        ((topic, "produce"), sum(p.written.records for p in all_of)) for topic, all_of in topics
    )
    yield from exposed(OVERVIEW["records_total"], records)
    sizes: Iterator[Sample] = (
        ((topic,), sum(p.log.size for p in all_of)) for topic, all_of in topics
    )
    yield from exposed(OVERVIEW["log_size_bytes"], sizes)
    yield from summed("retention_held_bytes", lambda p: p.held_bytes)


def _groups(sources: Sources) -> Iterator[str]:
    broker = sources.broker
    standings = broker.groups.admin.progress()
    yield from _single("groups", broker.groups.group_count)
    yield from _single("groups_evicted_total", broker.groups.counts.groups_evicted)
    yield from _single("state_memory_bytes", broker.groups.memory.used)
    yield from _single("state_memory_limit_bytes", broker.groups.memory.bytes_max)
    yield from _single("transactional_ids", broker.transactions.id_count)
    yield from _single("hanging_transactions_total", broker.transactions.hanging_found)
    members = sorted(((s.group_id,), s.members) for s in standings)
    yield from exposed(OVERVIEW["group_members"], members)
    yield from _single("group_members_expired_total", broker.groups.counts.members_expired)
    records: Counter[tuple[str, ...]] = Counter()
    seconds: dict[tuple[str, ...], float] = {}
    now = broker.clock.monotonic()
    for lag in sources.lag_clock.lags(standings, broker.partitions, now):
        key = (lag.group, lag.topic)
        records[key] += lag.records
        if lag.seconds is not None:
            seconds[key] = max(seconds.get(key, 0.0), lag.seconds)
    yield from exposed(OVERVIEW["group_lag_records"], sorted(records.items()))
    yield from exposed(OVERVIEW["group_lag_seconds"], sorted(seconds.items()))


def _cleaner(cleaner: Cleaner) -> Iterator[str]:
    counts = cleaner.counts
    yield from _single("cleaner_rounds_total", counts.rounds)
    yield from _single("cleaner_read_bytes_total", counts.bytes_read)
    yield from _single("cleaner_written_bytes_total", counts.bytes_written)
    yield from _single("cleaner_helper_deaths_total", counts.helper_deaths)
    yield from _single("cleaner_dirtiest_ratio", counts.dirtiest_ratio)
    yield from _single("cleaner_uncleanable_partitions", len(cleaner.uncleanable))
