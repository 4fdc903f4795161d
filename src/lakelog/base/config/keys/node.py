"""The broker keys of a node: its ids, roles, listeners, data folder, connections and replicas.

Names, types, defaults and bounds follow `AbstractKafkaConfig` of Kafka 4.3.1. `node.id`
is 1 and `listeners` is on loopback by default, so that one broker needs no configuration.
`socket.listen.backlog.size` is 1024 instead of 50, because the event loop accepts connections
between its other work.
"""

from __future__ import annotations

from lakelog.base.config.key import (
    ConfigType,
    ConfigValue,
    Validator,
    at_least,
    dynamic_key,
    fixed_key,
)
from lakelog.base.endpoint import SecurityProtocol, parse_endpoint

_BOOLEAN, _STRING, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST
_INT, _LONG = ConfigType.INT, ConfigType.LONG
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

NODE_KEYS = (
    fixed_key("node.id", _INT, 1, "Id of this broker in its cluster.", at_least(0)),
    fixed_key("broker.id", _INT, -1, "Older name of node.id; -1 is unset."),
    fixed_key(
        "broker.rack",
        _STRING,
        None,
        "Failure domain of this broker, such as a rack or an availability zone.",
    ),
    fixed_key(
        "process.roles",
        _LIST,
        "broker,controller",
        "Roles of this process; `broker` is required.",
        Validator(
            lambda roles: isinstance(roles, tuple) and {"broker"} <= set(roles) <= _ROLES,
            "broker, or broker,controller",
        ),
    ),
    fixed_key(
        "listeners",
        _LIST,
        "PLAINTEXT://127.0.0.1:9092",
        "Addresses on which the broker accepts connections.",
        _ENDPOINTS,
    ),
    fixed_key(
        "advertised.listeners",
        _LIST,
        None,
        "Addresses that the broker returns to clients; when unset, the address that the client "
        "connected to.",
        _ENDPOINTS,
    ),
    fixed_key(
        "listener.security.protocol.map",
        _LIST,
        "PLAINTEXT:PLAINTEXT",
        "Security protocol of each listener name; entries without a listener are ignored.",
    ),
    fixed_key("log.dirs", _LIST, None, "Data folder; exactly one is supported."),
    fixed_key("log.dir", _LIST, None, "Data folder; used when log.dirs is unset."),
)


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


REPLICATION_KEYS = (
    fixed_key(
        "request.timeout.ms",
        _INT,
        30_000,
        "Time, in milliseconds, within which the in-sync replicas must have a record of "
        "__transaction_state or a transaction marker; otherwise it is retried.",
    ),
    fixed_key(
        "broker.session.timeout.ms",
        _INT,
        4000,
        "Time, in milliseconds, after which the controller fences a broker without heartbeats.",
        at_least(1),
    ),
    fixed_key(
        "replica.lag.time.max.ms",
        _LONG,
        30_000,
        "Time, in milliseconds, after which a follower that is behind leaves the ISR.",
        at_least(1),
    ),
    fixed_key(
        "auto.leader.rebalance.enable",
        _BOOLEAN,
        "true",
        "Whether the preferred replica leads its partition again once it has all records.",
    ),
)
