"""The broker keys of a node: its ids, roles, listeners, data folder, connections and replicas.

Names, types, defaults and bounds follow `AbstractKafkaConfig` of Kafka 4.3.1. `node.id`
is 1 and `listeners` is on loopback by default, so that one broker needs no configuration.
`socket.listen.backlog.size` is 1024 instead of 50, because the event loop accepts connections
between its other work.
"""

from __future__ import annotations

from lakelog.base.config.key import ConfigValue, Validator
from lakelog.base.config.rows import parse_keys
from lakelog.base.endpoint import SecurityProtocol, parse_endpoint

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

_ROLE_LIST = Validator(
    lambda roles: isinstance(roles, tuple) and {"broker"} <= set(roles) <= _ROLES,
    "broker, or broker,controller",
)

NODE_KEYS = parse_keys(
    """
node.id int 1 0..
    Id of this broker in its cluster.
broker.id int -1
    Older name of node.id; -1 is unset.
broker.rack string -
    Failure domain of this broker, such as a rack or an availability zone.
process.roles list broker,controller
    Roles of this process; `broker` is required.
listeners list PLAINTEXT://127.0.0.1:9092
    Addresses on which the broker accepts connections.
advertised.listeners list -
    Addresses that the broker returns to clients; when unset, the address that the client connected
    to.
listener.security.protocol.map list PLAINTEXT:PLAINTEXT
    Security protocol of each listener name; entries without a listener are ignored.
log.dirs list -
    Data folder; exactly one is supported.
log.dir list -
    Data folder; used when log.dirs is unset.
""",
    {"process.roles": _ROLE_LIST, "listeners": _ENDPOINTS, "advertised.listeners": _ENDPOINTS},
)


CONNECTION_KEYS = parse_keys(
    """
socket.request.max.bytes int 104857600 1..
    Maximum size of a request, in bytes.
queued.max.request.bytes long 268435456 -1..
    Memory, in bytes, for requests being received, of all connections together, and the same amount
    again for requests waiting for a response; -1 is no limit. Apache Kafka's default is -1.
socket.listen.backlog.size int 1024 1..
    Maximum number of connections waiting to be accepted; limited by the kernel's
    net.core.somaxconn.
max.connections int 10000 0.. cluster-wide
    Maximum number of open connections. Apache Kafka's default is unlimited.
max.connection.creation.rate int 2147483647 0.. cluster-wide
    Maximum number of connections accepted per second; further connections wait.
max.connections.per.ip int 2147483647 1.. cluster-wide
    Maximum number of open connections from one address.
connections.max.idle.ms long 600000
    Time, in milliseconds, after which an idle connection is closed; negative disables it.
fetch.max.bytes int 57671680 1024..
    Maximum size of the records in a Fetch response, in bytes.
max.request.partition.size.limit int 2000 1..
    Maximum number of partitions in one DescribeTopicPartitions response.
max.incremental.fetch.session.cache.slots int 1000 0..
    Maximum number of fetch sessions.
"""
)


REPLICATION_KEYS = parse_keys(
    """
request.timeout.ms int 30000
    Time, in milliseconds, within which the in-sync replicas must have a record of
    __transaction_state or a transaction marker; otherwise it is retried.
broker.session.timeout.ms int 4000 1..
    Time, in milliseconds, after which the controller fences a broker without heartbeats.
replica.lag.time.max.ms long 30000 1..
    Time, in milliseconds, after which a follower that is behind leaves the ISR.
auto.leader.rebalance.enable boolean true
    Whether the preferred replica leads its partition again once it has all records.
"""
)
