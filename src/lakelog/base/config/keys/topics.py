"""The topic keys: the keys of Apache Kafka 4.4, and lakelog's own.

Names, types, defaults and bounds follow `org.apache.kafka.storage.internals.log.LogConfig`; the
broker keys that supply the defaults follow `ServerTopicConfigSynonyms`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakelog.base.config.key import (
    ConfigKey,
    ConfigType,
    ConfigValue,
    Effect,
    Synonym,
    Validator,
    at_least,
    between,
    between_or,
    key_table,
    list_of,
    one_of,
)
from lakelog.base.config.keys.tables import TABLE_KEYS

LONG_MAX = (1 << 63) - 1
HOUR_MS = 3_600_000
WEEK_MS = 604_800_000
DAY_MS = 86_400_000
_THROTTLED = re.compile(r"[0-9]+:[0-9]+", re.ASCII)
PAGE_CACHE, FSYNC = "page-cache", "fsync"
VERIFY_SAMPLED, VERIFY_ALL, VERIFY_NONE = "sampled", "all", "none"
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIERED = "tiered storage is not supported"
_UNTHROTTLED = "replication is not throttled"
_LEVELS = "each codec has a fixed level"


def _whole(
    name: str, default: int, doc: str, bound: Validator | None, *synonyms: Synonym | str
) -> ConfigKey:
    """Return a key of the type LONG."""
    return ConfigKey(name, ConfigType.LONG, str(default), doc, bound, synonyms=_synonyms(synonyms))


def _int(name: str, default: int, doc: str, bound: Validator, synonym: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, str(default), doc, bound, synonyms=_synonyms((synonym,)))


def _synonyms(synonyms: tuple[Synonym | str, ...]) -> tuple[Synonym, ...]:
    return tuple(Synonym(item) if isinstance(item, str) else item for item in synonyms)


def _inert(
    name: str,
    config_type: ConfigType,
    default: str,
    reason: str,
    bound: Validator | None = None,
    synonym: str = "",
    effect: Effect = Effect.NONE,
) -> ConfigKey:
    synonyms = (Synonym(synonym),) if synonym else ()
    return ConfigKey(
        name, config_type, default, "", bound, synonyms=synonyms, effect=effect, reason=reason
    )


def _not_yet(key: ConfigKey, reason: str) -> ConfigKey:
    """Return the key without effect; its description states the effect that it will have."""
    return key._replace(effect=Effect.NONE, reason=reason)


def _throttled_replicas() -> Validator:
    def accepts(value: ConfigValue) -> bool:
        return isinstance(value, tuple) and (
            value == ("*",) or all(_THROTTLED.fullmatch(item) for item in value)
        )

    return Validator(accepts, "* or a list of PARTITION:BROKER")


_SIZE_AND_TIME = (
    _int(
        "segment.bytes",
        1 << 30,
        "Maximum size of a segment, in bytes; a full segment is closed and the next one created.",
        at_least(1 << 20),
        "log.segment.bytes",
    ),
    ConfigKey(
        "internal.segment.bytes",
        ConfigType.INT,
        None,
        "Replaces segment.bytes, without its lower bound; for tests.",
        at_least(1),
        internal=True,
    ),
    _whole(
        "segment.ms",
        WEEK_MS,
        "Age, in milliseconds, at which a segment is closed even if it is not full.",
        at_least(1),
        "log.roll.ms",
        Synonym("log.roll.hours", HOUR_MS),
    ),
    _whole(
        "segment.jitter.ms",
        0,
        "Maximum random time, in milliseconds, that is subtracted from segment.ms, so that "
        "segments are not all closed at the same time.",
        at_least(0),
        "log.roll.jitter.ms",
        Synonym("log.roll.jitter.hours", HOUR_MS),
    ),
    _int(
        "segment.index.bytes",
        10 << 20,
        "Maximum size of an offset index, in bytes; a segment with a full index is closed.",
        at_least(4),
        "log.index.size.max.bytes",
    ),
    _int(
        "index.interval.bytes",
        4096,
        "Bytes of log between two entries of the offset index.",
        at_least(0),
        "log.index.interval.bytes",
    ),
    _whole(
        "retention.ms",
        WEEK_MS,
        "Age, in milliseconds, above which closed segments are deleted; -1 is no limit.",
        at_least(-1),
        "log.retention.ms",
        Synonym("log.retention.minutes", 60_000),
        Synonym("log.retention.hours", HOUR_MS),
    ),
    _whole(
        "retention.bytes",
        -1,
        "Size of a partition, in bytes, above which its oldest segments are deleted; -1 is no "
        "limit.",
        None,
        "log.retention.bytes",
    ),
    _whole(
        "file.delete.delay.ms",
        60_000,
        "Time, in milliseconds, between the deletion of a segment and the removal of its files.",
        at_least(0),
        "log.segment.delete.delay.ms",
    ),
    _whole(
        "flush.messages",
        LONG_MAX,
        "Number of records after which the log is synced to the device.",
        at_least(1),
        "log.flush.interval.messages",
    ),
    _whole(
        "flush.ms",
        LONG_MAX,
        "Time, in milliseconds, after which unsynced records are synced to the device.",
        at_least(0),
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
    ),
    ConfigKey(
        "durability",
        ConfigType.STRING,
        PAGE_CACHE,
        "The failures that acknowledged records survive: with `page-cache` the end of the process, "
        "with `fsync` also a power failure. Not a key of Apache Kafka; see docs/durability.md.",
        one_of(PAGE_CACHE, FSYNC),
        synonyms=(Synonym("log.durability"),),
    ),
    _not_yet(
        ConfigKey(
            "preallocate",
            ConfigType.BOOLEAN,
            "false",
            "Whether the file of a new segment is allocated in full size.",
            synonyms=(Synonym("log.preallocate"),),
        ),
        "files grow with their contents",
    ),
)

_RECORDS = (
    _int(
        "max.message.bytes",
        1_048_588,
        "Maximum size, in bytes, of a record batch as the producer sends it.",
        at_least(0),
        "message.max.bytes",
    ),
    ConfigKey(
        "records.verify",
        ConfigType.STRING,
        VERIFY_SAMPLED,
        "The batches whose records are verified before they are stored: `sampled` (the first of "
        "each producer and connection, then one in 540 to 10,000), `all` as in Apache Kafka, or "
        "`none`. Not a key of Apache Kafka; see docs/limits.md.",
        one_of(VERIFY_SAMPLED, VERIFY_ALL, VERIFY_NONE),
        synonyms=(Synonym("log.records.verify"),),
    ),
    ConfigKey(
        "message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        "Whether a record keeps the timestamp of its producer (CreateTime) or gets that of the "
        "broker (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
        synonyms=(Synonym("log.message.timestamp.type"),),
    ),
    _whole(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "Maximum time, in milliseconds, by which a record's timestamp may lie in the past.",
        at_least(0),
        "log.message.timestamp.before.max.ms",
    ),
    _whole(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        "Maximum time, in milliseconds, by which a record's timestamp may lie in the future.",
        at_least(0),
        "log.message.timestamp.after.max.ms",
    ),
    ConfigKey(
        "compression.type",
        ConfigType.STRING,
        "producer",
        "Codec of the stored batches; `producer` keeps the codec of the producer.",
        one_of(*COMPRESSION_TYPES),
        synonyms=(Synonym("compression.type"),),
    ),
    _inert(
        "compression.gzip.level",
        ConfigType.INT,
        "-1",
        _LEVELS,
        between_or(1, 9, -1),
        "compression.gzip.level",
    ),
    _inert(
        "compression.lz4.level",
        ConfigType.INT,
        "9",
        _LEVELS,
        between(1, 17),
        "compression.lz4.level",
    ),
    _inert(
        "compression.zstd.level",
        ConfigType.INT,
        "3",
        _LEVELS,
        between(-131_072, 22),
        "compression.zstd.level",
    ),
    _int(
        "max.decompressed.message.bytes",
        2_147_483_639,
        "Maximum decompressed size, in bytes, of a batch that the broker decompresses when it is "
        "produced: in compacted topics, and where compression.type is a codec. Never more than 64 "
        "MiB.",
        between(1, 2_147_483_639),
        "max.decompressed.message.bytes",
    ),
    _int(
        "min.insync.replicas",
        1,
        "Minimum number of in-sync replicas; with fewer, writes with acks=all are rejected.",
        at_least(1),
        "min.insync.replicas",
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        "false",
        "Whether a replica that may lack committed records becomes leader when no eligible "
        "replica is left; records can be lost.",
        synonyms=(Synonym("unclean.leader.election.enable"),),
    ),
)

_CLEANUP = (
    ConfigKey(
        "cleanup.policy",
        ConfigType.LIST,
        "delete",
        "Whether old segments are deleted, compacted by key, or both; empty keeps everything.",
        list_of("compact", "delete"),
        synonyms=(Synonym("log.cleanup.policy"),),
    ),
    _whole(
        "delete.retention.ms",
        DAY_MS,
        "Time, in milliseconds, for which a compacted topic keeps tombstones.",
        at_least(0),
        "log.cleaner.delete.retention.ms",
    ),
    _whole(
        "min.compaction.lag.ms",
        0,
        "Age, in milliseconds, below which a record is not removed by compaction.",
        at_least(0),
        "log.cleaner.min.compaction.lag.ms",
    ),
    _whole(
        "max.compaction.lag.ms",
        LONG_MAX,
        "Age, in milliseconds, at which a record becomes due for compaction.",
        at_least(1),
        "log.cleaner.max.compaction.lag.ms",
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        "0.5",
        "Share of a log that must be uncompacted before it is compacted again.",
        between(0, 1),
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
    ),
)

_INERT = (
    _inert(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        _UNTHROTTLED,
        _throttled_replicas(),
    ),
    _inert(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        _UNTHROTTLED,
        _throttled_replicas(),
    ),
    _inert(
        "errors.deadletterqueue.group.enable",
        ConfigType.BOOLEAN,
        "false",
        "share groups are not supported",
    ),
    _inert(
        "local.retention.ms", ConfigType.LONG, "-2", _TIERED, at_least(-2), "log.local.retention.ms"
    ),
    _inert(
        "local.retention.bytes",
        ConfigType.LONG,
        "-2",
        _TIERED,
        at_least(-2),
        "log.local.retention.bytes",
    ),
    _inert("remote.copy.lag.ms", ConfigType.LONG, "0", _TIERED, at_least(-1)),
    _inert("remote.copy.lag.bytes", ConfigType.LONG, "-1", _TIERED, at_least(-1)),
    _inert("remote.log.copy.disable", ConfigType.BOOLEAN, "false", _TIERED),
    _inert("remote.log.delete.on.disable", ConfigType.BOOLEAN, "false", _TIERED),
    _inert("remote.storage.enable", ConfigType.BOOLEAN, "false", _TIERED, effect=Effect.REFUSED),
)

TOPIC_CONFIGS: Mapping[str, ConfigKey] = key_table(
    _SIZE_AND_TIME, _RECORDS, _CLEANUP, TABLE_KEYS, _INERT
)
