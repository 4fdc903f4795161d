"""Apache Kafka's broker keys that this broker honours or refuses.

Names, types, defaults and bounds follow `AbstractKafkaConfig` of Kafka 4.3.1. Defaults that differ
on purpose: one node is a whole cluster (`node.id` 1, replication factors 1, roles broker and
controller), `listeners` stays on loopback, and `socket.listen.backlog.size` is 1024, because one
loop accepts between its other work.
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
from lakelog.base.endpoint import parse_endpoint

_BOOLEAN, _STRING, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST
_INT, _SHORT, _LONG, _DOUBLE = ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE
_INT_MAX = (1 << 31) - 1
_ROLES = {"broker", "controller"}
_PROTECTED = frozenset({"SSL", "SASL_PLAINTEXT", "SASL_SSL"})


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
    _fixed("node.id", _INT, 1, "Number of this broker in its cluster.", at_least(0)),
    _fixed("broker.id", _INT, -1, "Older name of node.id."),
    _fixed("broker.rack", _STRING, None, "Failure domain this broker is in."),
    _fixed(
        "process.roles",
        _LIST,
        "broker,controller",
        "Roles of this process; broker must be one.",
        Validator(
            lambda roles: isinstance(roles, tuple) and {"broker"} <= set(roles) <= _ROLES,
            "broker, or broker,controller",
        ),
    ),
    _fixed("listeners", _LIST, "PLAINTEXT://127.0.0.1:9092", "Addresses to listen on.", _ENDPOINTS),
    _fixed(
        "advertised.listeners",
        _LIST,
        None,
        "Addresses given to clients; unset, each is told the one it connected to.",
        _ENDPOINTS,
    ),
    _fixed(
        "listener.security.protocol.map",
        _LIST,
        "PLAINTEXT:PLAINTEXT",
        "Protocol of each listener name; entries of listeners that do not exist are ignored.",
    ),
    _fixed("log.dirs", _LIST, None, "The data folder; exactly one."),
    _fixed("log.dir", _LIST, None, "The data folder, when log.dirs is unset."),
)

_NETWORK = (
    _fixed(
        "socket.request.max.bytes", _INT, 100 << 20, "Largest request that is read.", at_least(1)
    ),
    _fixed(
        "queued.max.request.bytes",
        _LONG,
        256 << 20,
        "Memory of requests that are being received, of all connections together, and as much "
        "again for those that wait for an answer; -1 for no limit. Apache Kafka's default is -1.",
        at_least(-1),
    ),
    _fixed(
        "socket.listen.backlog.size",
        _INT,
        1024,
        "Connections that wait to be accepted; the kernel's net.core.somaxconn bounds it.",
        at_least(1),
    ),
    _dynamic(
        "max.connections",
        _INT,
        10_000,
        "Connections open at once. Apache Kafka's default is unlimited.",
        at_least(0),
    ),
    _dynamic(
        "max.connection.creation.rate",
        _INT,
        _INT_MAX,
        "Connections accepted in a second; more wait until it is their turn.",
        at_least(0),
    ),
    _dynamic(
        "max.connections.per.ip",
        _INT,
        _INT_MAX,
        "Connections open at once from one address.",
        at_least(1),
    ),
    _fixed(
        "connections.max.idle.ms",
        _LONG,
        600_000,
        "Time after which a silent connection is closed; negative means never.",
    ),
    _fixed("fetch.max.bytes", _INT, 55 << 20, "Largest answer to a Fetch.", at_least(1024)),
    _fixed(
        "max.request.partition.size.limit",
        _INT,
        2000,
        "Partitions in one answer to a DescribeTopicPartitions.",
        at_least(1),
    ),
    _fixed(
        "max.incremental.fetch.session.cache.slots", _INT, 1000, "Fetch sessions kept.", at_least(0)
    ),
)

_TOPICS = (
    _fixed(
        "auto.create.topics.enable",
        _BOOLEAN,
        "true",
        "Whether asking for a topic that does not exist may create it.",
    ),
    _fixed("delete.topic.enable", _BOOLEAN, "true", "Whether topics may be deleted."),
    _fixed(
        "num.partitions", _INT, 1, "Partitions of a topic created without a count.", at_least(1)
    ),
    _fixed(
        "default.replication.factor",
        _INT,
        1,
        "Replicas of a topic created without a count.",
        at_least(1),
    ),
    _dynamic("message.max.bytes", _INT, 1_048_588, "Largest record batch taken.", at_least(0)),
    _dynamic(
        "max.decompressed.message.bytes",
        _INT,
        2_147_483_639,
        "What a compressed batch may take decompressed; never more than 64 MiB.",
        between(1, 2_147_483_639),
    ),
    _dynamic("min.insync.replicas", _INT, 1, "In-sync replicas that acks=all needs.", at_least(1)),
    _dynamic(
        "producer.id.expiration.ms",
        _INT,
        86_400_000,
        "Time after its last write at which a producer's sequence numbers are forgotten.",
        at_least(1),
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        _INT,
        "600000",
        "Time between two looks for producers to be forgotten.",
        at_least(1),
        internal=True,
    ),
)

_LOG = (
    _dynamic("log.segment.bytes", _INT, 1 << 30, "Size of a segment.", at_least(1 << 20)),
    _dynamic("log.roll.ms", _LONG, None, "Age at which a segment is closed.", at_least(1)),
    _fixed("log.roll.hours", _INT, 168, "The same in hours.", at_least(1)),
    _dynamic("log.roll.jitter.ms", _LONG, None, "Random time taken off it.", at_least(0)),
    _fixed("log.roll.jitter.hours", _INT, 0, "The same in hours.", at_least(0)),
    _dynamic("log.index.size.max.bytes", _INT, 10 << 20, "Size of an index.", at_least(4)),
    _dynamic(
        "log.index.interval.bytes", _INT, 4096, "Bytes between two index entries.", at_least(0)
    ),
    _dynamic("log.retention.bytes", _LONG, -1, "Size kept per partition; -1 is no limit."),
    _dynamic("log.retention.ms", _LONG, None, "Time segments are kept; -1 is for ever."),
    _fixed(
        "log.retention.minutes", _INT, None, "The same in minutes, if log.retention.ms is unset."
    ),
    _fixed("log.retention.hours", _INT, 168, "The same in hours, if both are unset."),
    _fixed(
        "log.retention.check.interval.ms",
        _LONG,
        300_000,
        "Time between two retention runs.",
        at_least(1),
    ),
    _dynamic(
        "log.segment.delete.delay.ms", _LONG, 60_000, "Time until deleted files go.", at_least(0)
    ),
    _dynamic(
        "log.flush.interval.messages", _LONG, LONG_MAX, "Records between two syncs.", at_least(1)
    ),
    _dynamic("log.flush.interval.ms", _LONG, None, "Time between two syncs.", at_least(0)),
    _dynamic(
        "log.durability",
        _STRING,
        PAGE_CACHE,
        "What acknowledged records survive (see docs/durability.md). Not a key of Apache Kafka.",
        one_of(PAGE_CACHE, FSYNC),
    ),
    _dynamic(
        "log.records.verify",
        _STRING,
        VERIFY_SAMPLED,
        "Which batches have each record verified (see docs/limits.md). Not a key of Apache Kafka.",
        one_of(VERIFY_SAMPLED, VERIFY_ALL, VERIFY_NONE),
    ),
    _fixed(
        "log.flush.scheduler.interval.ms",
        _LONG,
        LONG_MAX,
        "The same, if log.flush.interval.ms is unset.",
        at_least(0),
    ),
    _fixed(
        "replica.high.watermark.checkpoint.interval.ms",
        _LONG,
        5000,
        "Time between two writes of the high watermarks.",
        at_least(1),
    ),
    _dynamic(
        "log.message.timestamp.type",
        _STRING,
        "CreateTime",
        "Whose time a record carries.",
        one_of("CreateTime", "LogAppendTime"),
    ),
    _dynamic(
        "log.message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        "How old a record may be.",
        at_least(0),
    ),
    _dynamic(
        "log.message.timestamp.after.max.ms",
        _LONG,
        3_600_000,
        "How far in the future a record may be.",
        at_least(0),
    ),
    _dynamic(
        "compression.type",
        _STRING,
        "producer",
        "Codec of the stored batches; `producer` keeps what came.",
        one_of(*COMPRESSION_TYPES),
    ),
    _dynamic(
        "log.cleanup.policy",
        _LIST,
        "delete",
        "What happens to old segments.",
        list_of("compact", "delete"),
    ),
)

_GROUPS = (
    _fixed(
        "group.initial.rebalance.delay.ms",
        _INT,
        3000,
        "Time an empty group waits for more members before its first rebalance.",
        at_least(0),
    ),
    _fixed(
        "group.min.session.timeout.ms",
        _INT,
        6000,
        "Shortest session a member may ask.",
        at_least(1),
    ),
    _fixed(
        "group.max.session.timeout.ms",
        _INT,
        1_800_000,
        "Longest session a member may ask.",
        at_least(1),
    ),
    _fixed(
        "group.max.size",
        _INT,
        10_000,
        "Members of one group. Apache Kafka's default is unlimited.",
        at_least(1),
    ),
    _fixed(
        "offset.metadata.max.bytes", _INT, 4096, "Longest text kept with an offset.", at_least(0)
    ),
    _fixed(
        "offsets.retention.minutes",
        _INT,
        10_080,
        "Time an empty group's offsets are kept.",
        at_least(1),
    ),
    _fixed(
        "offsets.retention.check.interval.ms",
        _LONG,
        600_000,
        "Time between two looks for expired offsets.",
        at_least(1),
    ),
    _fixed(
        "offsets.topic.num.partitions",
        _INT,
        50,
        "Partitions of __consumer_offsets; fixed once it exists.",
        at_least(1),
    ),
    _fixed(
        "offsets.topic.replication.factor",
        _SHORT,
        1,
        "Replicas of __consumer_offsets.",
        at_least(1),
    ),
    _fixed(
        "offsets.topic.segment.bytes",
        _INT,
        100 << 20,
        "Segment size of __consumer_offsets.",
        at_least(1),
    ),
)

_REFUSED = (
    _refused(
        "security.inter.broker.protocol", _STRING, "PLAINTEXT", "no listener is protected yet"
    ),
    _refused("authorizer.class.name", _STRING, "", "nothing is authorised yet"),
    _refused("super.users", _STRING, "", "nothing is authorised yet"),
    _refused("create.topic.policy.class.name", ConfigType.CLASS, None, "Java classes cannot run"),
    _refused("alter.config.policy.class.name", ConfigType.CLASS, None, "Java classes cannot run"),
    _refused("client.quota.callback.class", ConfigType.CLASS, None, "Java classes cannot run"),
    _refused("config.providers", _LIST, "", "values are taken literally"),
    _refused("remote.log.storage.system.enable", _BOOLEAN, "false", "there is no tiered storage"),
)

HONOURED_KEYS = _NODE + _NETWORK + _TOPICS + _LOG + CLEANER_KEYS + _GROUPS + CONSUMER_GROUP_KEYS
REFUSED_KEYS = _REFUSED
