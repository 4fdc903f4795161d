"""The broker keys of topics and logs; most are the defaults of topics' keys (`topics.py`).

Keys of compaction set the resources of its helper processes, too. Names, types, defaults and
bounds follow `AbstractKafkaConfig` and `CleanerConfig` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.config.key import ConfigError
from lakelog.base.config.rows import parse_keys

LOG_KEYS = parse_keys(
    """
auto.create.topics.enable boolean true
    Whether a Metadata request for an unknown topic may create it.
delete.topic.enable boolean true
    Whether topics may be deleted.
num.partitions int 1 1..
    Number of partitions of a topic that is created without one.
default.replication.factor int 1 1..
    Replication factor of a topic that is created without one.
message.max.bytes int 1048588 0.. cluster-wide
    Default of the topic key max.message.bytes: maximum size of a record batch, in bytes.
max.decompressed.message.bytes int 2147483639 1..2147483639 cluster-wide
    Default of the topic key of the same name: maximum decompressed size, in bytes, of a batch that
    the broker decompresses; never more than 64 MiB.
min.insync.replicas int 1 1.. cluster-wide
    Default of the topic key of the same name: minimum number of in-sync replicas for a write with
    acks=all. The first broker of a cluster records it for all brokers; change it there, as a
    setting of all brokers.
unclean.leader.election.enable boolean false cluster-wide
    Default of the topic key of the same name: whether a replica that may lack committed records
    becomes leader when no other replica can. The first broker of a cluster records it for all
    brokers; change it there, as a setting of all brokers.
producer.id.expiration.ms int 86400000 1.. cluster-wide
    Time, in milliseconds, after its last write at which an idempotent producer is forgotten.
producer.id.expiration.check.interval.ms int 600000 1.. internal
    Interval, in milliseconds, between checks for expired producers.
log.segment.bytes int 1073741824 1048576.. cluster-wide
    Default of the topic key segment.bytes: maximum size of a segment, in bytes.
log.roll.ms long - 1.. cluster-wide
    Default of the topic key segment.ms: age, in milliseconds, at which a segment is closed.
log.roll.hours int 168 1..
    Age, in hours, at which a segment is closed; used when log.roll.ms is unset.
log.roll.jitter.ms long - 0.. cluster-wide
    Default of the topic key segment.jitter.ms: maximum random time, in milliseconds, that is
    subtracted from the age at which a segment is closed.
log.roll.jitter.hours int 0 0..
    Maximum random time, in hours, that is subtracted from the age at which a segment is closed;
    used when log.roll.jitter.ms is unset.
log.index.size.max.bytes int 10485760 4.. cluster-wide
    Default of the topic key segment.index.bytes: maximum size of an offset index, in bytes.
log.index.interval.bytes int 4096 0.. cluster-wide
    Default of the topic key index.interval.bytes: bytes of log between two entries of the offset
    index.
log.retention.bytes long -1 cluster-wide
    Default of the topic key retention.bytes: size of a partition, in bytes, above which old
    segments are deleted; -1 is no limit.
log.retention.ms long - cluster-wide
    Default of the topic key retention.ms: age, in milliseconds, above which closed segments are
    deleted; -1 is no limit.
log.retention.minutes int -
    Retention in minutes; used when log.retention.ms is unset.
log.retention.hours int 168
    Retention in hours; used when log.retention.ms and log.retention.minutes are unset.
log.retention.check.interval.ms long 300000 1..
    Interval, in milliseconds, between checks for segments to delete.
log.segment.delete.delay.ms long 60000 0.. cluster-wide
    Default of the topic key file.delete.delay.ms: time, in milliseconds, between the deletion of a
    segment and the removal of its files.
log.flush.interval.messages long 9223372036854775807 1.. cluster-wide
    Default of the topic key flush.messages: number of records after which a log is synced to the
    device.
log.flush.interval.ms long - 0.. cluster-wide
    Default of the topic key flush.ms: time, in milliseconds, after which unsynced records are
    synced to the device.
log.durability string page-cache in:page-cache|fsync cluster-wide
    Default of the topic key durability: the failures that acknowledged records survive (see
    docs/durability.md). Not a key of Apache Kafka.
log.records.verify string sampled in:sampled|all|none cluster-wide
    Default of the topic key records.verify: the batches whose records are verified (see
    docs/limits.md). Not a key of Apache Kafka.
log.flush.scheduler.interval.ms long 9223372036854775807 0..
    Time, in milliseconds, after which unsynced records are synced to the device; used when
    log.flush.interval.ms is unset.
replica.high.watermark.checkpoint.interval.ms long 5000 1..
    Interval, in milliseconds, between writes of the checkpoint files, such as the high watermarks.
log.message.timestamp.type string CreateTime in:CreateTime|LogAppendTime cluster-wide
    Default of the topic key message.timestamp.type: whether a record keeps the timestamp of its
    producer or gets that of the broker.
log.message.timestamp.before.max.ms long 9223372036854775807 0.. cluster-wide
    Default of the topic key message.timestamp.before.max.ms: maximum age of a record's timestamp,
    in milliseconds.
log.message.timestamp.after.max.ms long 3600000 0.. cluster-wide
    Default of the topic key message.timestamp.after.max.ms: maximum time, in milliseconds, by which
    a record's timestamp may lie in the future.
compression.type string producer in:uncompressed|zstd|lz4|snappy|gzip|producer cluster-wide
    Default of the topic key of the same name: codec of the stored batches; `producer` keeps the
    codec of the producer.
log.cleanup.policy list delete in:compact|delete cluster-wide
    Default of the topic key cleanup.policy: whether old segments are deleted, compacted by key, or
    both; empty keeps everything.
"""
)


_MAP_BYTES_MIN = 1 << 20


CLEANER_KEYS = parse_keys(
    """
log.cleaner.enable boolean true
    Whether topics with cleanup.policy=compact are compacted.
log.cleaner.threads int 1 0.. cluster-wide
    Maximum number of helper processes that compact at the same time; at most 32 are used.
log.cleaner.backoff.ms long 15000 0.. cluster-wide
    Interval, in milliseconds, between checks for logs to compact.
log.cleaner.dedupe.buffer.size long 134217728 1048576.. cluster-wide
    Memory, in bytes, for the keys of the logs being compacted, shared by the helper processes; a
    key takes 200 bytes.
log.cleaner.io.buffer.load.factor double 0.9 0..1 cluster-wide
    Share of log.cleaner.dedupe.buffer.size that may be filled; a log with more keys is compacted in
    several passes.
log.cleaner.io.buffer.size int 524288 0.. cluster-wide
    Memory, in bytes, for reading segments, shared by the helper processes.
log.cleaner.io.max.bytes.per.second double 1.7976931348623157E308 cluster-wide
    Maximum number of bytes that all helper processes together read and write per second.
log.cleaner.delete.retention.ms long 86400000 0.. cluster-wide
    Default of the topic key delete.retention.ms: time, in milliseconds, for which a compacted topic
    keeps tombstones.
log.cleaner.min.compaction.lag.ms long 0 0.. cluster-wide
    Default of the topic key min.compaction.lag.ms: age, in milliseconds, below which a record is
    not removed by compaction.
log.cleaner.max.compaction.lag.ms long 9223372036854775807 1.. cluster-wide
    Default of the topic key max.compaction.lag.ms: age, in milliseconds, at which a record becomes
    due for compaction.
log.cleaner.min.cleanable.ratio double 0.5 0..1 cluster-wide
    Default of the topic key min.cleanable.dirty.ratio: share of a log that must be uncompacted
    before it is compacted again.
"""
)


def check_cleaner_keys(get_int: Callable[[str], int]) -> None:
    """Raise `ConfigError` unless each helper has more than 1 MiB for keys, as Kafka requires."""
    size, threads = get_int("log.cleaner.dedupe.buffer.size"), get_int("log.cleaner.threads")
    if size // max(threads, 1) <= _MAP_BYTES_MIN:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size",
            str(size),
            f"not allowed with log.cleaner.threads={threads}; allowed: more than 1 MiB for each",
        )
