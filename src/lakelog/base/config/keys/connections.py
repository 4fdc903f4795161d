"""The broker keys that bound connections and requests.

Names, types, defaults and bounds follow `AbstractKafkaConfig` of Kafka 4.3.1.
`socket.listen.backlog.size` is 1024 instead of 50, because the event loop accepts connections
between its other work.
"""

from __future__ import annotations

from lakelog.base.config.key import ConfigType, at_least, dynamic_key, fixed_key

_INT, _LONG = ConfigType.INT, ConfigType.LONG
_INT_MAX = (1 << 31) - 1

CONNECTION_KEYS = (
    fixed_key(
        "socket.request.max.bytes",
        _INT,
        100 << 20,
        "Maximum size of a request, in bytes.",
        at_least(1),
    ),
    fixed_key(
        "queued.max.request.bytes",
        _LONG,
        256 << 20,
        "Memory, in bytes, for requests being received, of all connections together, and the same "
        "amount again for requests waiting for a response; -1 is no limit. Apache Kafka's default "
        "is -1.",
        at_least(-1),
    ),
    fixed_key(
        "socket.listen.backlog.size",
        _INT,
        1024,
        "Maximum number of connections waiting to be accepted; limited by the kernel's "
        "net.core.somaxconn.",
        at_least(1),
    ),
    dynamic_key(
        "max.connections",
        _INT,
        10_000,
        "Maximum number of open connections. Apache Kafka's default is unlimited.",
        at_least(0),
    ),
    dynamic_key(
        "max.connection.creation.rate",
        _INT,
        _INT_MAX,
        "Maximum number of connections accepted per second; further connections wait.",
        at_least(0),
    ),
    dynamic_key(
        "max.connections.per.ip",
        _INT,
        _INT_MAX,
        "Maximum number of open connections from one address.",
        at_least(1),
    ),
    fixed_key(
        "connections.max.idle.ms",
        _LONG,
        600_000,
        "Time, in milliseconds, after which an idle connection is closed; negative disables it.",
    ),
    fixed_key(
        "fetch.max.bytes",
        _INT,
        55 << 20,
        "Maximum size of the records in a Fetch response, in bytes.",
        at_least(1024),
    ),
    fixed_key(
        "max.request.partition.size.limit",
        _INT,
        2000,
        "Maximum number of partitions in one DescribeTopicPartitions response.",
        at_least(1),
    ),
    fixed_key(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1000,
        "Maximum number of fetch sessions.",
        at_least(0),
    ),
)
