"""The broker keys of topics and logs; most are the defaults of topics' keys (`topics.py`).

Keys of compaction set the resources of its helper processes, too. Names, types, defaults and
bounds follow `AbstractKafkaConfig` and `CleanerConfig` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.config.key import (
    ConfigError,
    ConfigKey,
    ConfigType,
    at_least,
    between,
    dynamic_key,
    fixed_key,
    list_of,
    one_of,
)
from lakelog.base.config.keys.topics import (
    COMPRESSION_TYPES,
    DAY_MS,
    FSYNC,
    LONG_MAX,
    PAGE_CACHE,
    VERIFY_ALL,
    VERIFY_NONE,
    VERIFY_SAMPLED,
)

_BOOLEAN, _STRING, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST
_INT, _LONG, _DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE

LOG_KEYS = (
    fixed_key(
        "auto.create.topics.enable",
        _BOOLEAN,
        "true",
        "Whether a Metadata request for an unknown topic may create it.",
    ),
    fixed_key("delete.topic.enable", _BOOLEAN, "true", "Whether topics may be deleted."),
    fixed_key(
        "num.partitions",
        _INT,
        1,
        "Number of partitions of a topic that is created without one.",
        at_least(1),
    ),
    fixed_key(
        "default.replication.factor",
        _INT,
        1,
        "Replication factor of a topic that is created without one.",
        at_least(1),
    ),
    dynamic_key(
        "message.max.bytes",
        _INT,
        1_048_588,
        "Default of the topic key max.message.bytes: maximum size of a record batch, in bytes.",
        at_least(0),
    ),
    dynamic_key(
        "max.decompressed.message.bytes",
        _INT,
        2_147_483_639,
        "Default of the topic key of the same name: maximum decompressed size, in bytes, of a "
        "batch that the broker decompresses; never more than 64 MiB.",
        between(1, 2_147_483_639),
    ),
    dynamic_key(
        "min.insync.replicas",
        _INT,
        1,
        "Default of the topic key of the same name: minimum number of in-sync replicas for a "
        "write with acks=all. The first broker of a cluster records it for all brokers; change "
        "it there, as a setting of all brokers.",
        at_least(1),
    ),
    dynamic_key(
        "unclean.leader.election.enable",
        _BOOLEAN,
        "false",
        "Default of the topic key of the same name: whether a replica that may lack committed "
        "records becomes leader when no other replica can. The first broker of a cluster records "
        "it for all brokers; change it there, as a setting of all brokers.",
    ),
    dynamic_key(
        "producer.id.expiration.ms",
        _INT,
        86_400_000,
        "Time, in milliseconds, after its last write at which an idempotent producer is forgotten.",
        at_least(1),
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        _INT,
        "600000",
        "Interval, in milliseconds, between checks for expired producers.",
        at_least(1),
        internal=True,
    ),
    dynamic_key(
        "log.segment.bytes",
        _INT,
        1 << 30,
        "Default of the topic key segment.bytes: maximum size of a segment, in bytes.",
        at_least(1 << 20),
    ),
    dynamic_key(
        "log.roll.ms",
        _LONG,
        None,
        "Default of the topic key segment.ms: age, in milliseconds, at which a segment is closed.",
        at_least(1),
    ),
    fixed_key(
        "log.roll.hours",
        _INT,
        168,
        "Age, in hours, at which a segment is closed; used when log.roll.ms is unset.",
        at_least(1),
    ),
    dynamic_key(
        "log.roll.jitter.ms",
        _LONG,
        None,
        "Default of the topic key segment.jitter.ms: maximum random time, in milliseconds, that "
        "is subtracted from the age at which a segment is closed.",
        at_least(0),
    ),
    fixed_key(
        "log.roll.jitter.hours",
        _INT,
        0,
        "Maximum random time, in hours, that is subtracted from the age at which a segment is "
        "closed; used when log.roll.jitter.ms is unset.",
        at_least(0),
    ),
    dynamic_key(
        "log.index.size.max.bytes",
        _INT,
        10 << 20,
        "Default of the topic key segment.index.bytes: maximum size of an offset index, in bytes.",
        at_least(4),
    ),
    dynamic_key(
        "log.index.interval.bytes",
        _INT,
        4096,
        "Default of the topic key index.interval.bytes: bytes of log between two entries of the "
        "offset index.",
        at_least(0),
    ),
    dynamic_key(
        "log.retention.bytes",
        _LONG,
        -1,
        "Default of the topic key retention.bytes: size of a partition, in bytes, above which old "
        "segments are deleted; -1 is no limit.",
    ),
    dynamic_key(
        "log.retention.ms",
        _LONG,
        None,
        "Default of the topic key retention.ms: age, in milliseconds, above which closed segments "
        "are deleted; -1 is no limit.",
    ),
    fixed_key(
        "log.retention.minutes",
        _INT,
        None,
        "Retention in minutes; used when log.retention.ms is unset.",
    ),
    fixed_key(
        "log.retention.hours",
        _INT,
        168,
        "Retention in hours; used when log.retention.ms and log.retention.minutes are unset.",
    ),
    fixed_key(
        "log.retention.check.interval.ms",
        _LONG,
        300_000,
        "Interval, in milliseconds, between checks for segments to delete.",
        at_least(1),
    ),
    dynamic_key(
        "log.segment.delete.delay.ms",
        _LONG,
        60_000,
        "Default of the topic key file.delete.delay.ms: time, in milliseconds, between the "
        "deletion of a segment and the removal of its files.",
        at_least(0),
    ),
    dynamic_key(
        "log.flush.interval.messages",
        _LONG,
        LONG_MAX,
        "Default of the topic key flush.messages: number of records after which a log is synced "
        "to the device.",
        at_least(1),
    ),
    dynamic_key(
        "log.flush.interval.ms",
        _LONG,
        None,
        "Default of the topic key flush.ms: time, in milliseconds, after which unsynced records "
        "are synced to the device.",
        at_least(0),
    ),
    dynamic_key(
        "log.durability",
        _STRING,
        PAGE_CACHE,
        "Default of the topic key durability: the failures that acknowledged records survive (see "
        "docs/durability.md). Not a key of Apache Kafka.",
        one_of(PAGE_CACHE, FSYNC),
    ),
    dynamic_key(
        "log.records.verify",
        _STRING,
        VERIFY_SAMPLED,
        "Default of the topic key records.verify: the batches whose records are verified (see "
        "docs/limits.md). Not a key of Apache Kafka.",
        one_of(VERIFY_SAMPLED, VERIFY_ALL, VERIFY_NONE),
    ),
    fixed_key(
        "log.flush.scheduler.interval.ms",
        _LONG,
        LONG_MAX,
        "Time, in milliseconds, after which unsynced records are synced to the device; used when "
        "log.flush.interval.ms is unset.",
        at_least(0),
    ),
    fixed_key(
        "replica.high.watermark.checkpoint.interval.ms",
        _LONG,
        5000,
        "Interval, in milliseconds, between writes of the checkpoint files, such as the high "
        "watermarks.",
        at_least(1),
    ),
    dynamic_key(
        "log.message.timestamp.type",
        _STRING,
        "CreateTime",
        "Default of the topic key message.timestamp.type: whether a record keeps the timestamp "
        "of its producer or gets that of the broker.",
        one_of("CreateTime", "LogAppendTime"),
    ),
    dynamic_key(
        "log.message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        "Default of the topic key message.timestamp.before.max.ms: maximum age of a record's "
        "timestamp, in milliseconds.",
        at_least(0),
    ),
    dynamic_key(
        "log.message.timestamp.after.max.ms",
        _LONG,
        3_600_000,
        "Default of the topic key message.timestamp.after.max.ms: maximum time, in milliseconds, "
        "by which a record's timestamp may lie in the future.",
        at_least(0),
    ),
    dynamic_key(
        "compression.type",
        _STRING,
        "producer",
        "Default of the topic key of the same name: codec of the stored batches; `producer` keeps "
        "the codec of the producer.",
        one_of(*COMPRESSION_TYPES),
    ),
    dynamic_key(
        "log.cleanup.policy",
        _LIST,
        "delete",
        "Default of the topic key cleanup.policy: whether old segments are deleted, compacted by "
        "key, or both; empty keeps everything.",
        list_of("compact", "delete"),
    ),
)


_MAP_BYTES_MIN = 1 << 20


CLEANER_KEYS = (
    fixed_key(
        "log.cleaner.enable",
        ConfigType.BOOLEAN,
        "true",
        "Whether topics with cleanup.policy=compact are compacted.",
    ),
    dynamic_key(
        "log.cleaner.threads",
        _INT,
        1,
        "Maximum number of helper processes that compact at the same time; at most 32 are used.",
        at_least(0),
    ),
    dynamic_key(
        "log.cleaner.backoff.ms",
        _LONG,
        15_000,
        "Interval, in milliseconds, between checks for logs to compact.",
        at_least(0),
    ),
    dynamic_key(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        128 << 20,
        "Memory, in bytes, for the keys of the logs being compacted, shared by the helper "
        "processes; a key takes 200 bytes.",
        at_least(_MAP_BYTES_MIN),
    ),
    dynamic_key(
        "log.cleaner.io.buffer.load.factor",
        _DOUBLE,
        0.9,
        "Share of log.cleaner.dedupe.buffer.size that may be filled; a log with more keys is "
        "compacted in several passes.",
        between(0, 1),
    ),
    dynamic_key(
        "log.cleaner.io.buffer.size",
        _INT,
        512 << 10,
        "Memory, in bytes, for reading segments, shared by the helper processes.",
        at_least(0),
    ),
    dynamic_key(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        "1.7976931348623157E308",
        "Maximum number of bytes that all helper processes together read and write per second.",
    ),
    dynamic_key(
        "log.cleaner.delete.retention.ms",
        _LONG,
        DAY_MS,
        "Default of the topic key delete.retention.ms: time, in milliseconds, for which a "
        "compacted topic keeps tombstones.",
        at_least(0),
    ),
    dynamic_key(
        "log.cleaner.min.compaction.lag.ms",
        _LONG,
        0,
        "Default of the topic key min.compaction.lag.ms: age, in milliseconds, below which a "
        "record is not removed by compaction.",
        at_least(0),
    ),
    dynamic_key(
        "log.cleaner.max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        "Default of the topic key max.compaction.lag.ms: age, in milliseconds, at which a record "
        "becomes due for compaction.",
        at_least(1),
    ),
    dynamic_key(
        "log.cleaner.min.cleanable.ratio",
        _DOUBLE,
        0.5,
        "Default of the topic key min.cleanable.dirty.ratio: share of a log that must be "
        "uncompacted before it is compacted again.",
        between(0, 1),
    ),
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
