"""The topic keys: the keys of Apache Kafka 4.4, and lakelog's own.

Names, types, defaults and bounds follow `org.apache.kafka.storage.internals.log.LogConfig`; the
broker keys that supply the defaults follow `ServerTopicConfigSynonyms`. The keys `table.*`, of
archives in Iceberg tables, are unknown to Apache Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakelog.base.config.key import ConfigKey, ConfigValue, Validator, key_table
from lakelog.base.config.rows import parse_keys

_NAME = re.compile(r"[A-Za-z0-9._-]{0,249}", re.ASCII)
_TERM = re.compile(r"partition|timestampType|topic|(year|month|day|hour)\(timestamp\)")
_TERMS = (
    "a comma-separated list of partition, timestampType, topic, year(timestamp), "
    "month(timestamp), day(timestamp), hour(timestamp)"
)
# Clients can read configurations, so credentials have no place there.
_REGISTRY = re.compile(r"https?://[^\s@?#/][^\s@?#]*", re.ASCII)
_ARCHIVED = re.compile(r"[0-9]{1,10}:[0-9]{1,19}", re.ASCII)


def _is_name(value: ConfigValue) -> bool:
    is_folder = value in (".", "..")
    return isinstance(value, str) and bool(_NAME.fullmatch(value)) and not is_folder


def _is_registry(value: ConfigValue) -> bool:
    return value == "" or (isinstance(value, str) and bool(_REGISTRY.fullmatch(value)))


def _list_of(item: re.Pattern[str], allowed: str) -> Validator:
    """Return a check for a list whose items match the pattern."""
    return Validator(
        lambda value: isinstance(value, tuple) and all(map(item.fullmatch, value)), allowed
    )


_NAME_BOUND = Validator(_is_name, "up to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'")

TABLE_KEYS = parse_keys(
    """
table.enable boolean false
    Whether an Iceberg table archives the topic. Retention and compaction then keep records that are
    not archived yet, and `format("lakelog")` reads archived offsets from the table.
table.name string ""
    Name of the topic's table in the namespace `lakelog`; empty: the topic's name.
table.value.format string none in:none|json|registry|registry-latest
    With `json` the archive job adds the fields of JSON values to the table, in the struct column
    `data`; what does not fit goes into the column `rescued`. With `registry` it adds the fields of
    the Avro schemas and JSON Schemas that the values name, with `registry-latest` of the newest
    version of TOPIC-value when the job starts.
table.schema.registry.url string ""
    URL of the schema registry that `registry` and `registry-latest` need. The archive job has its
    credentials in the environment: LAKELOG_SCHEMA_REGISTRY_USER_INFO.
table.partition_by list ""
    Partition spec of the topic's table when it is created, such as day(timestamp); empty: none,
    because the bounds of files skip offsets and times anyway.
table.errors string stop in:stop|dead-letter|skip
    How the archive treats a record that cannot be a row of the table: stop with an error,
    dead-letter (write it to the table NAME_dead_letters), or skip (count it). The job reads it at
    its start.
table.latest boolean false
    Whether a second table has the newest record of each key: `lakelog table sync` and `lakelog
    table refresh` derive it from the archive. A record with a null value removes the row of its
    key.
table.latest.name string ""
    Name of the table of newest records; empty: the name of the topic's table with the suffix
    `_latest`.
table.latest.buckets int 16 1..256
    Number of files of a new table of newest records, by the hash of the key. A refresh replaces the
    files in which keys have changed.
table.latest.interval.ms long 300000 1000..
    Least time, in milliseconds, between refreshes of the table of newest records by a job that
    continues with new records.
table.warehouse string ""
    Folder or URI of the topic's table. The archive job sets it.
table.catalog string ""
    Local folder of the catalog of the topic's table; empty: the warehouse. The archive job sets it.
table.archived.offsets list ""
    Set by the archive job: for each partition the first unarchived offset, such as 0:1200,1:0. With
    table.enable, retention keeps the records from there on; a partition without an entry keeps all.
""",
    {
        "table.name": _NAME_BOUND,
        "table.schema.registry.url": Validator(
            _is_registry, "empty, or a URL http://… or https://… without credentials"
        ),
        "table.partition_by": _list_of(_TERM, _TERMS),
        "table.latest.name": _NAME_BOUND,
        "table.archived.offsets": _list_of(_ARCHIVED, "a comma-separated list of PARTITION:OFFSET"),
    },
)


LONG_MAX = (1 << 63) - 1
HOUR_MS = 3_600_000
WEEK_MS = 604_800_000
DAY_MS = 86_400_000
_THROTTLED = re.compile(r"[0-9]+:[0-9]+", re.ASCII)
PAGE_CACHE, FSYNC = "page-cache", "fsync"
VERIFY_SAMPLED, VERIFY_ALL, VERIFY_NONE = "sampled", "all", "none"


def _are_throttled(value: ConfigValue) -> bool:
    return isinstance(value, tuple) and (
        value == ("*",) or all(_THROTTLED.fullmatch(item) for item in value)
    )


_THROTTLED_REPLICAS = Validator(_are_throttled, "* or a list of PARTITION:BROKER")

_KEYS = parse_keys(
    """
segment.bytes int 1073741824 1048576.. =log.segment.bytes
    Maximum size of a segment, in bytes; a full segment is closed and the next one created.
internal.segment.bytes int - 1.. internal
    Replaces segment.bytes, without its lower bound; for tests.
segment.ms long 604800000 1.. =log.roll.ms =log.roll.hours
    Age, in milliseconds, at which a segment is closed even if it is not full.
segment.jitter.ms long 0 0.. =log.roll.jitter.ms =log.roll.jitter.hours
    Maximum random time, in milliseconds, that is subtracted from segment.ms, so that segments are
    not all closed at the same time.
segment.index.bytes int 10485760 4.. =log.index.size.max.bytes
    Maximum size of an offset index, in bytes; a segment with a full index is closed.
index.interval.bytes int 4096 0.. =log.index.interval.bytes
    Bytes of log between two entries of the offset index.
retention.ms long 604800000 -1.. =log.retention.ms =log.retention.minutes =log.retention.hours
    Age, in milliseconds, above which closed segments are deleted; -1 is no limit.
retention.bytes long -1 =log.retention.bytes
    Size of a partition, in bytes, above which its oldest segments are deleted; -1 is no limit.
file.delete.delay.ms long 60000 0.. =log.segment.delete.delay.ms
    Time, in milliseconds, between the deletion of a segment and the removal of its files.
flush.messages long 9223372036854775807 1.. =log.flush.interval.messages
    Number of records after which the log is synced to the device.
flush.ms long 9223372036854775807 0.. =log.flush.interval.ms =log.flush.scheduler.interval.ms
    Time, in milliseconds, after which unsynced records are synced to the device.
durability string page-cache in:page-cache|fsync =log.durability
    The failures that acknowledged records survive: with `page-cache` the end of the process, with
    `fsync` also a power failure. Not a key of Apache Kafka; see docs/durability.md.
max.message.bytes int 1048588 0.. =message.max.bytes
    Maximum size, in bytes, of a record batch as the producer sends it.
records.verify string sampled in:sampled|all|none =log.records.verify
    The batches whose records are verified before they are stored: `sampled` (the first of each
    producer and connection, then one in 540 to 10,000), `all` as in Apache Kafka, or `none`. Not a
    key of Apache Kafka; see docs/limits.md.
message.timestamp.type string CreateTime in:CreateTime|LogAppendTime =log.message.timestamp.type
    Whether a record keeps the timestamp of its producer (CreateTime) or gets that of the broker
    (LogAppendTime).
message.timestamp.before.max.ms long 9223372036854775807 0.. =log.message.timestamp.before.max.ms
    Maximum time, in milliseconds, by which a record's timestamp may lie in the past.
message.timestamp.after.max.ms long 3600000 0.. =log.message.timestamp.after.max.ms
    Maximum time, in milliseconds, by which a record's timestamp may lie in the future.
compression.type string producer in:uncompressed|zstd|lz4|snappy|gzip|producer =compression.type
    Codec of the stored batches; `producer` keeps the codec of the producer.
max.decompressed.message.bytes int 2147483639 1..2147483639 =max.decompressed.message.bytes
    Maximum decompressed size, in bytes, of a batch that the broker decompresses when it is
    produced: in compacted topics, and where compression.type is a codec. Never more than 64 MiB.
min.insync.replicas int 1 1.. =min.insync.replicas
    Minimum number of in-sync replicas; with fewer, writes with acks=all are rejected.
unclean.leader.election.enable boolean false =unclean.leader.election.enable
    Whether a replica that may lack committed records becomes leader when no eligible replica is
    left; records can be lost.
cleanup.policy list delete in:compact|delete =log.cleanup.policy
    Whether old segments are deleted, compacted by key, or both; empty keeps everything.
delete.retention.ms long 86400000 0.. =log.cleaner.delete.retention.ms
    Time, in milliseconds, for which a compacted topic keeps tombstones.
min.compaction.lag.ms long 0 0.. =log.cleaner.min.compaction.lag.ms
    Age, in milliseconds, below which a record is not removed by compaction.
max.compaction.lag.ms long 9223372036854775807 1.. =log.cleaner.max.compaction.lag.ms
    Age, in milliseconds, at which a record becomes due for compaction.
min.cleanable.dirty.ratio double 0.5 0..1 =log.cleaner.min.cleanable.ratio
    Share of a log that must be uncompacted before it is compacted again.
"""
)


_INERT = parse_keys(
    """
# files grow with their contents
preallocate boolean false =log.preallocate
    Whether the file of a new segment is allocated in full size.
# each codec has a fixed level
compression.gzip.level int -1 1..9|-1 =compression.gzip.level
compression.lz4.level int 9 1..17 =compression.lz4.level
compression.zstd.level int 3 -131072..22 =compression.zstd.level
# replication is not throttled
leader.replication.throttled.replicas list ""
follower.replication.throttled.replicas list ""
# share groups are not supported
errors.deadletterqueue.group.enable boolean false
# tiered storage is not supported
local.retention.ms long -2 -2.. =log.local.retention.ms
local.retention.bytes long -2 -2.. =log.local.retention.bytes
remote.copy.lag.ms long 0 -1..
remote.copy.lag.bytes long -1 -1..
remote.log.copy.disable boolean false
remote.log.delete.on.disable boolean false
#- tiered storage is not supported
remote.storage.enable boolean false
""",
    {
        "leader.replication.throttled.replicas": _THROTTLED_REPLICAS,
        "follower.replication.throttled.replicas": _THROTTLED_REPLICAS,
    },
)

TOPIC_CONFIGS: Mapping[str, ConfigKey] = key_table(_KEYS, TABLE_KEYS, _INERT)
