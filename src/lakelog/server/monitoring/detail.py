"""The lines of /metrics/detail, one for each partition, and the names of other exporters."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakelog.metrics.exposition import Sample, exposed
from lakelog.replica.partition import Partition
from lakelog.server.monitoring.collect import cluster_numbers
from lakelog.server.monitoring.families import (
    CLUSTER_ALIASES,
    COMPAT,
    DETAIL,
    ELECTION_COUNT,
)
from lakelog.server.monitoring.lag import Lag
from lakelog.server.monitoring.sources import Sources

_OF_PARTITIONS: dict[str, Callable[[Partition], int]] = {
    "partition_log_start_offset": lambda p: p.log.log_start_offset,
    "partition_log_end_offset": lambda p: p.log.log_end_offset,
    "partition_high_watermark": lambda p: p.watermark.offset,
    "partition_last_stable_offset": lambda p: p.last_stable_offset,
    "partition_leader_epoch": lambda p: p.leader_epoch,
    "partition_log_size_bytes": lambda p: p.log.size,
    "partition_segments": lambda p: len(p.log.segments),
    "partition_producers": lambda p: len(p.log.producers),
    "partition_produce_bytes_total": lambda p: p.written.bytes,
    "partition_fetch_bytes_total": lambda p: p.fetched_bytes,
    "partition_records_total": lambda p: p.written.records,
}


def detail(sources: Sources) -> Iterator[str]:
    """Yield a family for each number, with a line for each partition."""
    partitions = sorted(sources.broker.partitions, key=lambda p: (p.topic, p.index))
    for name, number in _OF_PARTITIONS.items():
        samples: Iterator[Sample] = ((_place(p), number(p)) for p in partitions)
        yield from exposed(DETAIL[name], samples)
    lags = _lags(sources)
    committed = ((_group_place(lag), lag.committed) for lag in lags)
    yield from exposed(DETAIL["group_committed_offset"], committed)
    records = ((_group_place(lag), lag.records) for lag in lags)
    yield from exposed(DETAIL["group_partition_lag_records"], records)
    seconds = ((_group_place(lag), lag.seconds) for lag in lags if lag.seconds is not None)
    yield from exposed(DETAIL["group_partition_lag_seconds"], seconds)


def compat(sources: Sources) -> Iterator[str]:
    """Yield the metrics of this broker under the names of exporters for Kafka."""
    broker = sources.broker
    serving = len(broker.image.brokers) - len(broker.image.fenced)
    yield from exposed(COMPAT["kafka_brokers"], [((), serving)])
    yield from _compat_topics(sources)
    numbers = cluster_numbers(sources)
    for alias, name in CLUSTER_ALIASES.items():
        yield from exposed(COMPAT[alias], [((), numbers[name])])
    elections = broker.controller.elections
    elections.fold()
    yield from exposed(COMPAT[ELECTION_COUNT], [((), elections.count)])
    members = sorted(((s.group_id,), s.members) for s in broker.groups.admin.progress())
    yield from exposed(COMPAT["kafka_consumergroup_members"], members)
    lags = _lags(sources)
    committed = ((_group_place(lag), lag.committed) for lag in lags)
    yield from exposed(COMPAT["kafka_consumergroup_current_offset"], committed)
    records = ((_group_place(lag), lag.records) for lag in lags)
    yield from exposed(COMPAT["kafka_consumergroup_lag"], records)
    cluster = broker.cluster_id
    seconds = (
        ((cluster, *_group_place(lag)), lag.seconds) for lag in lags if lag.seconds is not None
    )
    yield from exposed(COMPAT["kafka_consumergroup_group_lag_seconds"], seconds)


def _compat_topics(sources: Sources) -> Iterator[str]:
    topics = sorted(sources.broker.image.topics, key=lambda topic: topic.name)
    counts: Iterator[Sample] = (((topic.name,), len(topic.partitions)) for topic in topics)
    yield from exposed(COMPAT["kafka_topic_partitions"], counts)
    here = sorted(sources.broker.partitions, key=lambda p: (p.topic, p.index))
    ends: Iterator[Sample] = ((_place(p), p.watermark.offset) for p in here)
    yield from exposed(COMPAT["kafka_topic_partition_current_offset"], ends)
    starts: Iterator[Sample] = ((_place(p), p.log.log_start_offset) for p in here)
    yield from exposed(COMPAT["kafka_topic_partition_oldest_offset"], starts)
    every = [(t.name, p) for t in topics for _, p in sorted(t.partitions.items())]
    in_sync: Iterator[Sample] = (
        ((name, str(image.partition)), len(image.isr)) for name, image in every
    )
    yield from exposed(COMPAT["kafka_topic_partition_in_sync_replica"], in_sync)
    behind: Iterator[Sample] = (
        ((name, str(image.partition)), int(len(image.isr) < len(image.replicas)))
        for name, image in every
    )
    yield from exposed(COMPAT["kafka_topic_partition_under_replicated_partition"], behind)


def _lags(sources: Sources) -> list[Lag]:
    broker = sources.broker
    standings = broker.groups.admin.progress()
    return sorted(
        sources.lag_clock.lags(standings, broker.partitions, broker.clock.monotonic()),
        key=lambda lag: (lag.group, lag.topic, lag.partition),
    )


def _place(partition: Partition) -> tuple[str, str]:
    return partition.topic, str(partition.index)


def _group_place(lag: Lag) -> tuple[str, str, str]:
    return lag.group, lag.topic, str(lag.partition)
