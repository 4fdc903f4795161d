"""Apache Kafka's broker keys that this broker honours or rejects.

Names, types, defaults and bounds follow `AbstractKafkaConfig` of Kafka 4.3.1. Some defaults differ
on purpose: a cluster has one broker (`node.id` 1, replication factors 1, roles broker and
controller), `listeners` is on loopback, and `socket.listen.backlog.size` is 1024, because the event
loop accepts connections between its other work.
"""

from __future__ import annotations

from lakelog.base.config.key import (
    ConfigKey,
    ConfigType,
    ConfigValue,
    Effect,
    UpdateMode,
    Validator,
    at_least,
    between,
    list_of,
    one_of,
)
from lakelog.base.config.keys.cleaner import CLEANER_KEYS
from lakelog.base.config.keys.consumer_groups import CONSUMER_GROUP_KEYS
from lakelog.base.config.keys.topics import (
    COMPRESSION_TYPES,
    FSYNC,
    LONG_MAX,
    PAGE_CACHE,
    VERIFY_ALL,
    VERIFY_NONE,
    VERIFY_SAMPLED,
)
from lakelog.base.endpoint import SecurityProtocol, parse_endpoint

_BOOLEAN, _STRING, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST
_INT, _SHORT, _LONG, _DOUBLE = ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE
_INT_MAX = (1 << 31) - 1
_ROLES = {"broker", "controller"}
_PROTECTED = {protocol.name for protocol in SecurityProtocol} - {"PLAINTEXT"}


def _are_endpoints(value: ConfigValue) -> bool:
    """Whether a list names unprotected listeners only, each name and port once."""
    if not isinstance(value, tuple) or not value:
        return False
    try:
        endpoints = [parse_endpoint(text) for text in value]
    except ValueError:
        return False
    names = {endpoint.name for endpoint in endpoints}
    return len(names) == len(endpoints) and not names & _PROTECTED


_ENDPOINTS = Validator(_are_endpoints, "a list of PLAINTEXT://HOST:PORT (no TLS, no SASL yet)")


def _fixed(
    name: str, kind: ConfigType, default: object, doc: str, bound: Validator | None = None
) -> ConfigKey:
    return ConfigKey(name, kind, _text(default), doc, bound)


def _dynamic(
    name: str, kind: ConfigType, default: object, doc: str, bound: Validator | None = None
) -> ConfigKey:
    return ConfigKey(name, kind, _text(default), doc, bound, UpdateMode.CLUSTER_WIDE)


def _refused(name: str, kind: ConfigType, default: str | None, reason: str) -> ConfigKey:
    return ConfigKey(name, kind, default, "", effect=Effect.REFUSED, reason=reason)


def _text(default: object) -> str | None:
    return None if default is None else str(default)


_NODE = (
    _fixed("node.id", _INT, 1, "Id of this broker in its cluster.", at_least(0)),
    _fixed("broker.id", _INT, -1, "Older name of node.id; -1 is unset."),
    _fixed(
        "broker.rack",
        _STRING,
        None,
        "Failure domain of this broker, such as a rack or an availability zone.",
    ),
    _fixed(
        "process.roles",
        _LIST,
        "broker,controller",
        "Roles of this process; `broker` is required.",
        Validator(
            lambda roles: isinstance(roles, tuple) and {"broker"} <= set(roles) <= _ROLES,
            "broker, or broker,controller",
        ),
    ),
    _fixed(
        "listeners",
        _LIST,
        "PLAINTEXT://127.0.0.1:9092",
        "Addresses on which the broker accepts connections.",
        _ENDPOINTS,
    ),
    _fixed(
        "advertised.listeners",
        _LIST,
        None,
        "Addresses that the broker returns to clients; when unset, the address that the client "
        "connected to.",
        _ENDPOINTS,
    ),
    _fixed(
        "listener.security.protocol.map",
        _LIST,
        "PLAINTEXT:PLAINTEXT",
        "Security protocol of each listener name; entries without a listener are ignored.",
    ),
    _fixed("log.dirs", _LIST, None, "Data folder; exactly one is supported."),
    _fixed("log.dir", _LIST, None, "Data folder; used when log.dirs is unset."),
)

_NETWORK = (
    _fixed(
        "socket.request.max.bytes",
        _INT,
        100 << 20,
        "Maximum size of a request, in bytes.",
        at_least(1),
    ),
    _fixed(
        "queued.max.request.bytes",
        _LONG,
        256 << 20,
        "Memory, in bytes, for requests being received, of all connections together, and the same "
        "amount again for requests waiting for a response; -1 is no limit. Apache Kafka's default "
        "is -1.",
        at_least(-1),
    ),
    _fixed(
        "socket.listen.backlog.size",
        _INT,
        1024,
        "Maximum number of connections waiting to be accepted; limited by the kernel's "
        "net.core.somaxconn.",
        at_least(1),
    ),
    _dynamic(
        "max.connections",
        _INT,
        10_000,
        "Maximum number of open connections. Apache Kafka's default is unlimited.",
        at_least(0),
    ),
    _dynamic(
        "max.connection.creation.rate",
        _INT,
        _INT_MAX,
        "Maximum number of connections accepted per second; further connections wait.",
        at_least(0),
    ),
    _dynamic(
        "max.connections.per.ip",
        _INT,
        _INT_MAX,
        "Maximum number of open connections from one address.",
        at_least(1),
    ),
    _fixed(
        "connections.max.idle.ms",
        _LONG,
        600_000,
        "Time, in milliseconds, after which an idle connection is closed; negative disables it.",
    ),
    _fixed(
        "fetch.max.bytes",
        _INT,
        55 << 20,
        "Maximum size of the records in a Fetch response, in bytes.",
        at_least(1024),
    ),
    _fixed(
        "max.request.partition.size.limit",
        _INT,
        2000,
        "Maximum number of partitions in one DescribeTopicPartitions response.",
        at_least(1),
    ),
    _fixed(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1000,
        "Maximum number of fetch sessions.",
        at_least(0),
    ),
)

_TOPICS = (
    _fixed(
        "auto.create.topics.enable",
        _BOOLEAN,
        "true",
        "Whether a Metadata request for an unknown topic may create it.",
    ),
    _fixed("delete.topic.enable", _BOOLEAN, "true", "Whether topics may be deleted."),
    _fixed(
        "num.partitions",
        _INT,
        1,
        "Number of partitions of a topic that is created without one.",
        at_least(1),
    ),
    _fixed(
        "default.replication.factor",
        _INT,
        1,
        "Replication factor of a topic that is created without one.",
        at_least(1),
    ),
    _dynamic(
        "message.max.bytes",
        _INT,
        1_048_588,
        "Default of the topic key max.message.bytes: maximum size of a record batch, in bytes.",
        at_least(0),
    ),
    _dynamic(
        "max.decompressed.message.bytes",
        _INT,
        2_147_483_639,
        "Default of the topic key of the same name: maximum decompressed size, in bytes, of a "
        "batch that the broker decompresses; never more than 64 MiB.",
        between(1, 2_147_483_639),
    ),
    _dynamic(
        "min.insync.replicas",
        _INT,
        1,
        "Default of the topic key of the same name: minimum number of in-sync replicas for a "
        "write with acks=all.",
        at_least(1),
    ),
    _dynamic(
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
)

_LOG = (
    _dynamic(
        "log.segment.bytes",
        _INT,
        1 << 30,
        "Default of the topic key segment.bytes: maximum size of a segment, in bytes.",
        at_least(1 << 20),
    ),
    _dynamic(
        "log.roll.ms",
        _LONG,
        None,
        "Default of the topic key segment.ms: age, in milliseconds, at which a segment is closed.",
        at_least(1),
    ),
    _fixed(
        "log.roll.hours",
        _INT,
        168,
        "Age, in hours, at which a segment is closed; used when log.roll.ms is unset.",
        at_least(1),
    ),
    _dynamic(
        "log.roll.jitter.ms",
        _LONG,
        None,
        "Default of the topic key segment.jitter.ms: maximum random time, in milliseconds, that "
        "is subtracted from the age at which a segment is closed.",
        at_least(0),
    ),
    _fixed(
        "log.roll.jitter.hours",
        _INT,
        0,
        "Maximum random time, in hours, that is subtracted from the age at which a segment is "
        "closed; used when log.roll.jitter.ms is unset.",
        at_least(0),
    ),
    _dynamic(
        "log.index.size.max.bytes",
        _INT,
        10 << 20,
        "Default of the topic key segment.index.bytes: maximum size of an offset index, in bytes.",
        at_least(4),
    ),
    _dynamic(
        "log.index.interval.bytes",
        _INT,
        4096,
        "Default of the topic key index.interval.bytes: bytes of log between two entries of the "
        "offset index.",
        at_least(0),
    ),
    _dynamic(
        "log.retention.bytes",
        _LONG,
        -1,
        "Default of the topic key retention.bytes: size of a partition, in bytes, above which old "
        "segments are deleted; -1 is no limit.",
    ),
    _dynamic(
        "log.retention.ms",
        _LONG,
        None,
        "Default of the topic key retention.ms: age, in milliseconds, above which closed segments "
        "are deleted; -1 is no limit.",
    ),
    _fixed(
        "log.retention.minutes",
        _INT,
        None,
        "Retention in minutes; used when log.retention.ms is unset.",
    ),
    _fixed(
        "log.retention.hours",
        _INT,
        168,
        "Retention in hours; used when log.retention.ms and log.retention.minutes are unset.",
    ),
    _fixed(
        "log.retention.check.interval.ms",
        _LONG,
        300_000,
        "Interval, in milliseconds, between checks for segments to delete.",
        at_least(1),
    ),
    _dynamic(
        "log.segment.delete.delay.ms",
        _LONG,
        60_000,
        "Default of the topic key file.delete.delay.ms: time, in milliseconds, between the "
        "deletion of a segment and the removal of its files.",
        at_least(0),
    ),
    _dynamic(
        "log.flush.interval.messages",
        _LONG,
        LONG_MAX,
        "Default of the topic key flush.messages: number of records after which a log is synced "
        "to the device.",
        at_least(1),
    ),
    _dynamic(
        "log.flush.interval.ms",
        _LONG,
        None,
        "Default of the topic key flush.ms: time, in milliseconds, after which unsynced records "
        "are synced to the device.",
        at_least(0),
    ),
    _dynamic(
        "log.durability",
        _STRING,
        PAGE_CACHE,
        "Default of the topic key durability: the failures that acknowledged records survive (see "
        "docs/durability.md). Not a key of Apache Kafka.",
        one_of(PAGE_CACHE, FSYNC),
    ),
    _dynamic(
        "log.records.verify",
        _STRING,
        VERIFY_SAMPLED,
        "Default of the topic key records.verify: the batches whose records are verified (see "
        "docs/limits.md). Not a key of Apache Kafka.",
        one_of(VERIFY_SAMPLED, VERIFY_ALL, VERIFY_NONE),
    ),
    _fixed(
        "log.flush.scheduler.interval.ms",
        _LONG,
        LONG_MAX,
        "Time, in milliseconds, after which unsynced records are synced to the device; used when "
        "log.flush.interval.ms is unset.",
        at_least(0),
    ),
    _fixed(
        "replica.high.watermark.checkpoint.interval.ms",
        _LONG,
        5000,
        "Interval, in milliseconds, between writes of the checkpoint files, such as the high "
        "watermarks.",
        at_least(1),
    ),
    _dynamic(
        "log.message.timestamp.type",
        _STRING,
        "CreateTime",
        "Default of the topic key message.timestamp.type: whether a record keeps the timestamp "
        "of its producer or gets that of the broker.",
        one_of("CreateTime", "LogAppendTime"),
    ),
    _dynamic(
        "log.message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        "Default of the topic key message.timestamp.before.max.ms: maximum age of a record's "
        "timestamp, in milliseconds.",
        at_least(0),
    ),
    _dynamic(
        "log.message.timestamp.after.max.ms",
        _LONG,
        3_600_000,
        "Default of the topic key message.timestamp.after.max.ms: maximum time, in milliseconds, "
        "by which a record's timestamp may lie in the future.",
        at_least(0),
    ),
    _dynamic(
        "compression.type",
        _STRING,
        "producer",
        "Default of the topic key of the same name: codec of the stored batches; `producer` keeps "
        "the codec of the producer.",
        one_of(*COMPRESSION_TYPES),
    ),
    _dynamic(
        "log.cleanup.policy",
        _LIST,
        "delete",
        "Default of the topic key cleanup.policy: whether old segments are deleted, compacted by "
        "key, or both; empty keeps everything.",
        list_of("compact", "delete"),
    ),
)

_GROUPS = (
    _fixed(
        "group.initial.rebalance.delay.ms",
        _INT,
        3000,
        "Time, in milliseconds, that an empty classic group waits for more members before its "
        "first rebalance.",
        at_least(0),
    ),
    _fixed(
        "group.min.session.timeout.ms",
        _INT,
        6000,
        "Minimum session timeout, in milliseconds, that a member of a classic group may request.",
        at_least(1),
    ),
    _fixed(
        "group.max.session.timeout.ms",
        _INT,
        1_800_000,
        "Maximum session timeout, in milliseconds, that a member of a classic group may request.",
        at_least(1),
    ),
    _fixed(
        "group.max.size",
        _INT,
        10_000,
        "Maximum number of members of one classic group. Apache Kafka's default is unlimited.",
        at_least(1),
    ),
    _fixed(
        "offset.metadata.max.bytes",
        _INT,
        4096,
        "Maximum size, in bytes, of the metadata of a committed offset.",
        at_least(0),
    ),
    _fixed(
        "offsets.retention.minutes",
        _INT,
        10_080,
        "Time, in minutes, after which the offsets of an empty group expire.",
        at_least(1),
    ),
    _fixed(
        "offsets.retention.check.interval.ms",
        _LONG,
        600_000,
        "Interval, in milliseconds, between checks for expired offsets.",
        at_least(1),
    ),
    _fixed(
        "offsets.commit.timeout.ms",
        _INT,
        5000,
        "Time, in milliseconds, within which the in-sync replicas of __consumer_offsets must have "
        "a commit or another change of a group; otherwise the request fails with "
        "COORDINATOR_NOT_AVAILABLE.",
        at_least(1),
    ),
    _fixed(
        "request.timeout.ms",
        _INT,
        30_000,
        "Time, in milliseconds, within which the in-sync replicas must have a record of "
        "__transaction_state or a transaction marker; otherwise it is retried.",
    ),
    _fixed(
        "offsets.topic.num.partitions",
        _INT,
        50,
        "Number of partitions of __consumer_offsets; fixed after its creation.",
        at_least(1),
    ),
    _fixed(
        "offsets.topic.replication.factor",
        _SHORT,
        1,
        "Replication factor of __consumer_offsets.",
        at_least(1),
    ),
    _fixed(
        "broker.session.timeout.ms",
        _INT,
        9000,
        "Time, in milliseconds, after which the controller fences a broker without heartbeats.",
        at_least(1),
    ),
    _fixed(
        "replica.lag.time.max.ms",
        _LONG,
        30_000,
        "Time, in milliseconds, after which a follower that is behind leaves the ISR.",
        at_least(1),
    ),
    _fixed(
        "auto.leader.rebalance.enable",
        _BOOLEAN,
        "true",
        "Whether the preferred replica leads its partition as soon as it is in sync again.",
    ),
    _fixed(
        "offsets.topic.segment.bytes",
        _INT,
        100 << 20,
        "Segment size of __consumer_offsets, in bytes.",
        at_least(1),
    ),
)

_REFUSED = (
    _refused(
        "security.inter.broker.protocol", _STRING, "PLAINTEXT", "listeners support PLAINTEXT only"
    ),
    _refused("authorizer.class.name", _STRING, "", "authorization is not supported"),
    _refused("super.users", _STRING, "", "authorization is not supported"),
    _refused(
        "create.topic.policy.class.name", ConfigType.CLASS, None, "Java classes are not supported"
    ),
    _refused(
        "alter.config.policy.class.name", ConfigType.CLASS, None, "Java classes are not supported"
    ),
    _refused(
        "client.quota.callback.class", ConfigType.CLASS, None, "Java classes are not supported"
    ),
    _refused("config.providers", _LIST, "", "values are used literally"),
    _refused(
        "remote.log.storage.system.enable", _BOOLEAN, "false", "tiered storage is not supported"
    ),
)

HONOURED_KEYS = _NODE + _NETWORK + _TOPICS + _LOG + CLEANER_KEYS + _GROUPS + CONSUMER_GROUP_KEYS
REFUSED_KEYS = _REFUSED
