"""The broker keys of groups, committed offsets and transactions, and the keys of a single group.

Names, types, defaults and bounds follow `AbstractKafkaConfig` of Kafka 4.3.1. For consumer groups
(KIP-848) the source is `GroupCoordinatorConfig` and `GroupConfig` of Kafka 4.4: a group's own key
overrides the broker's key of the same name with the prefix `group.`, within the bounds that the
broker sets. Replication factor and minimum ISR of transactions are 1, as one broker alone needs;
where they are not set, `server/topics/topics.py` chooses higher ones in a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakelog.base.config.key import (
    ConfigError,
    ConfigKey,
    ConfigValue,
    Synonym,
    UpdateMode,
    Validator,
    key_table,
)
from lakelog.base.config.rows import parse_keys

GROUP_KEYS = parse_keys(
    """
group.initial.rebalance.delay.ms int 3000 0..
    Time, in milliseconds, that an empty classic group waits for more members before its first
    rebalance.
group.min.session.timeout.ms int 6000 1..
    Minimum session timeout, in milliseconds, that a member of a classic group may request.
group.max.session.timeout.ms int 1800000 1..
    Maximum session timeout, in milliseconds, that a member of a classic group may request.
group.max.size int 10000 1..
    Maximum number of members of one classic group. Apache Kafka's default is unlimited.
offset.metadata.max.bytes int 4096 0..
    Maximum size, in bytes, of the metadata of a committed offset.
offsets.retention.minutes int 10080 1..
    Time, in minutes, after which the offsets of an empty group expire.
offsets.retention.check.interval.ms long 600000 1..
    Interval, in milliseconds, between checks for expired offsets.
offsets.commit.timeout.ms int 5000 1..
    Time, in milliseconds, within which the in-sync replicas of __consumer_offsets must have a
    commit or another change of a group; otherwise the request fails with COORDINATOR_NOT_AVAILABLE.
offsets.topic.num.partitions int 50 1..
    Number of partitions of __consumer_offsets; fixed after its creation.
offsets.topic.replication.factor short 1 1..
    Replication factor of __consumer_offsets. If it is not set, a cluster uses 3, or the number of
    its brokers if they are fewer.
offsets.topic.segment.bytes int 104857600 1..
    Segment size of __consumer_offsets, in bytes.
"""
)


TRANSACTION_KEYS = parse_keys(
    """
transaction.max.timeout.ms int 900000 1..
    Maximum transaction timeout, in milliseconds, that a producer may request.
transactional.id.expiration.ms int 604800000 1..
    Time, in milliseconds, after which a transactional id without transactions expires.
transaction.remove.expired.transaction.cleanup.interval.ms int 3600000 1..
    Interval, in milliseconds, between checks for expired transactional ids.
transaction.partition.verification.enable boolean true cluster-wide
    Whether the coordinator verifies a partition before it accepts the first batch of a transaction
    (KIP-890).
transaction.state.log.num.partitions int 50 1..
    Number of partitions of __transaction_state; fixed after its creation.
transaction.state.log.replication.factor short 1 1..
    Replication factor of __transaction_state. If it is not set, a cluster uses 3, or the number of
    its brokers if they are fewer.
transaction.state.log.min.isr int 1 1..
    min.insync.replicas of __transaction_state. If it is not set, a topic of three or more replicas
    gets 2.
transaction.state.log.segment.bytes int 104857600 1..
    Segment size of __transaction_state, in bytes.
#- two-phase commit with an external coordinator (KIP-939) is not supported
transaction.two.phase.commit.enable boolean false
"""
)


_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")
_PROTOCOLS = ("classic", "consumer", "share", "streams")
_TIMES = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")


def _is_policy(value: ConfigValue) -> bool:
    return isinstance(value, str) and value.lower() in _POLICIES


def _are_assignors(value: ConfigValue) -> bool:
    return isinstance(value, tuple) and bool(value) and set(value) <= {"uniform", "range"}


def _are_protocols(value: ConfigValue) -> bool:
    return isinstance(value, tuple) and bool(value) and set(value) <= set(_PROTOCOLS)


CONSUMER_GROUP_KEYS = parse_keys(
    """
group.coordinator.rebalance.protocols list classic,consumer,streams
    Group protocols that clients may use; without `consumer`, consumer groups are rejected. Share
    and streams groups are not supported.
group.consumer.session.timeout.ms int 45000 1..
    Time, in milliseconds, without a heartbeat after which a member of a consumer group is removed.
group.consumer.min.session.timeout.ms int 45000 1..
    Lower bound of the session timeout of consumer groups, in milliseconds.
group.consumer.max.session.timeout.ms int 60000 1..
    Upper bound of the session timeout of consumer groups, in milliseconds.
group.consumer.heartbeat.interval.ms int 5000 1..
    Interval, in milliseconds, between heartbeats of a member of a consumer group.
group.consumer.min.heartbeat.interval.ms int 5000 1..
    Lower bound of the heartbeat interval of consumer groups, in milliseconds.
group.consumer.max.heartbeat.interval.ms int 15000 1..
    Upper bound of the heartbeat interval of consumer groups, in milliseconds.
group.consumer.assignment.interval.ms int 1000 0.. cluster-wide
    Minimum time, in milliseconds, between two target assignments of a consumer group.
group.consumer.min.assignment.interval.ms int 0 0..
    Lower bound of the assignment interval of consumer groups, in milliseconds.
group.consumer.max.assignment.interval.ms int 15000 0..
    Upper bound of the assignment interval of consumer groups, in milliseconds.
group.consumer.max.size int 10000 1..
    Maximum number of members of one consumer group. Apache Kafka's default is unlimited.
group.consumer.assignors list uniform,range
    Assignors that members may choose; the first is the default.
group.consumer.migration.policy string bidirectional
    Directions in which a group with members may change between the classic and the consumer
    protocol.
group.consumer.regex.refresh.interval.ms int 600000 10000.. internal
    Interval, in milliseconds, between evaluations of the regular expressions that members subscribe
    to.
""",
    {
        "group.coordinator.rebalance.protocols": Validator(
            _are_protocols, f"a comma-separated list of {', '.join(_PROTOCOLS)}"
        ),
        "group.consumer.assignors": Validator(
            _are_assignors, "a comma-separated list of uniform, range"
        ),
        "group.consumer.migration.policy": Validator(_is_policy, ", ".join(_POLICIES)),
    },
)

GROUP_CONFIGS: Mapping[str, ConfigKey] = key_table(
    tuple(
        key._replace(
            name=f"consumer.{time}",
            synonyms=(Synonym(key.name),),
            update_mode=UpdateMode.CLUSTER_WIDE,
        )
        for time in _TIMES
        for key in CONSUMER_GROUP_KEYS
        if key.name == f"group.consumer.{time}"
    )
)
"""Keys of the resource type GROUP."""


def check_consumer_group_keys(get_int: Callable[[str], int]) -> None:
    """Raise `ConfigError` for contradicting values of the broker's keys."""
    for time in _TIMES:
        name = f"group.consumer.{time}"
        low, high = consumer_bounds(f"consumer.{time}", get_int)
        if not low <= get_int(name) <= high:
            raise ConfigError(name, str(get_int(name)), f"allowed: {low} to {high}")
    session, heartbeat = (get_int(f"group.consumer.{time}") for time in _TIMES[:2])
    if heartbeat >= session:
        raise ConfigError(
            "group.consumer.heartbeat.interval.ms",
            str(heartbeat),
            f"not below group.consumer.session.timeout.ms={session}",
        )


def consumer_bounds(name: str, get_int: Callable[[str], int]) -> tuple[int, int]:
    """Return the lower and upper bound that the broker sets for a key of `GROUP_CONFIGS`.

    Times are in milliseconds (KIP-848).
    """
    time = name.removeprefix("consumer.")
    return get_int(f"group.consumer.min.{time}"), get_int(f"group.consumer.max.{time}")


def check_group_configs(values: Mapping[str, str], get_int: Callable[[str], int]) -> None:
    """Raise `ConfigError` for invalid settings of one group, whose keys are in `GROUP_CONFIGS`."""
    times = {name: get_int(f"group.{name}") for name in GROUP_CONFIGS}
    for name, text in values.items():
        value = GROUP_CONFIGS[name].parse(text)
        assert isinstance(value, int)
        low, high = consumer_bounds(name, get_int)
        if not low <= value <= high:
            raise ConfigError(name, text, f"must be in the range {low} to {high} inclusive")
        times[name] = value
    session, heartbeat = (f"consumer.{time}" for time in _TIMES[:2])
    if times[heartbeat] >= times[session]:
        raise ConfigError(
            session, str(times[session]), f"must be greater than {heartbeat}={times[heartbeat]}"
        )


def group_times(values: Mapping[str, str], get_int: Callable[[str], int]) -> dict[str, int]:
    """Return the settings in force for a group, limited to the broker's current bounds.

    Times are in milliseconds. A stored value outside the bounds is limited, not rejected: the
    bounds may have changed since (KIP-848).
    """
    times = {"consumer.assignment.interval.ms": get_int("group.consumer.assignment.interval.ms")}
    for name, text in values.items():
        if name in GROUP_CONFIGS:
            low, high = consumer_bounds(name, get_int)
            times[name] = min(max(int(text), low), high)
    return times
