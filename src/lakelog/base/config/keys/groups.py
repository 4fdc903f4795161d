"""The broker keys of groups and committed offsets, and the keys of a single group.

Names, types, defaults and bounds follow `AbstractKafkaConfig` of Kafka 4.3.1. For consumer groups
(KIP-848) the source is `GroupCoordinatorConfig` and `GroupConfig` of Kafka 4.4: a group's own key
overrides the broker's key of the same name with the prefix `group.`, within the bounds that the
broker sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakelog.base.config.key import (
    ConfigError,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Synonym,
    UpdateMode,
    Validator,
    at_least,
    dynamic_key,
    fixed_key,
    key_table,
)

_INT, _SHORT, _LONG = ConfigType.INT, ConfigType.SHORT, ConfigType.LONG

GROUP_KEYS = (
    fixed_key(
        "group.initial.rebalance.delay.ms",
        _INT,
        3000,
        "Time, in milliseconds, that an empty classic group waits for more members before its "
        "first rebalance.",
        at_least(0),
    ),
    fixed_key(
        "group.min.session.timeout.ms",
        _INT,
        6000,
        "Minimum session timeout, in milliseconds, that a member of a classic group may request.",
        at_least(1),
    ),
    fixed_key(
        "group.max.session.timeout.ms",
        _INT,
        1_800_000,
        "Maximum session timeout, in milliseconds, that a member of a classic group may request.",
        at_least(1),
    ),
    fixed_key(
        "group.max.size",
        _INT,
        10_000,
        "Maximum number of members of one classic group. Apache Kafka's default is unlimited.",
        at_least(1),
    ),
    fixed_key(
        "offset.metadata.max.bytes",
        _INT,
        4096,
        "Maximum size, in bytes, of the metadata of a committed offset.",
        at_least(0),
    ),
    fixed_key(
        "offsets.retention.minutes",
        _INT,
        10_080,
        "Time, in minutes, after which the offsets of an empty group expire.",
        at_least(1),
    ),
    fixed_key(
        "offsets.retention.check.interval.ms",
        _LONG,
        600_000,
        "Interval, in milliseconds, between checks for expired offsets.",
        at_least(1),
    ),
    fixed_key(
        "offsets.commit.timeout.ms",
        _INT,
        5000,
        "Time, in milliseconds, within which the in-sync replicas of __consumer_offsets must have "
        "a commit or another change of a group; otherwise the request fails with "
        "COORDINATOR_NOT_AVAILABLE.",
        at_least(1),
    ),
    fixed_key(
        "offsets.topic.num.partitions",
        _INT,
        50,
        "Number of partitions of __consumer_offsets; fixed after its creation.",
        at_least(1),
    ),
    fixed_key(
        "offsets.topic.replication.factor",
        _SHORT,
        1,
        "Replication factor of __consumer_offsets. If it is not set, a cluster uses 3, or the "
        "number of its brokers if they are fewer.",
        at_least(1),
    ),
    fixed_key(
        "offsets.topic.segment.bytes",
        _INT,
        100 << 20,
        "Segment size of __consumer_offsets, in bytes.",
        at_least(1),
    ),
)


_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")
_PROTOCOLS = ("classic", "consumer", "share", "streams")
_TIMES = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")


def _int(name: str, default: int, doc: str, lowest: int = 1) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, str(default), doc, at_least(lowest))


def _is_policy(value: ConfigValue) -> bool:
    return isinstance(value, str) and value.lower() in _POLICIES


def _are_assignors(value: ConfigValue) -> bool:
    return isinstance(value, tuple) and bool(value) and set(value) <= {"uniform", "range"}


def _are_protocols(value: ConfigValue) -> bool:
    return isinstance(value, tuple) and bool(value) and set(value) <= set(_PROTOCOLS)


CONSUMER_GROUP_KEYS = (
    fixed_key(
        "group.coordinator.rebalance.protocols",
        ConfigType.LIST,
        "classic,consumer,streams",
        "Group protocols that clients may use; without `consumer`, consumer groups are rejected. "
        "Share and streams groups are not supported.",
        Validator(_are_protocols, f"a comma-separated list of {', '.join(_PROTOCOLS)}"),
    ),
    _int(
        "group.consumer.session.timeout.ms",
        45_000,
        "Time, in milliseconds, without a heartbeat after which a member of a consumer group is "
        "removed.",
    ),
    _int(
        "group.consumer.min.session.timeout.ms",
        45_000,
        "Lower bound of the session timeout of consumer groups, in milliseconds.",
    ),
    _int(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "Upper bound of the session timeout of consumer groups, in milliseconds.",
    ),
    _int(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "Interval, in milliseconds, between heartbeats of a member of a consumer group.",
    ),
    _int(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        "Lower bound of the heartbeat interval of consumer groups, in milliseconds.",
    ),
    _int(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "Upper bound of the heartbeat interval of consumer groups, in milliseconds.",
    ),
    dynamic_key(
        "group.consumer.assignment.interval.ms",
        ConfigType.INT,
        "1000",
        "Minimum time, in milliseconds, between two target assignments of a consumer group.",
        at_least(0),
    ),
    _int(
        "group.consumer.min.assignment.interval.ms",
        0,
        "Lower bound of the assignment interval of consumer groups, in milliseconds.",
        0,
    ),
    _int(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        "Upper bound of the assignment interval of consumer groups, in milliseconds.",
        0,
    ),
    _int(
        "group.consumer.max.size",
        10_000,
        "Maximum number of members of one consumer group. Apache Kafka's default is unlimited.",
    ),
    fixed_key(
        "group.consumer.assignors",
        ConfigType.LIST,
        "uniform,range",
        "Assignors that members may choose; the first is the default.",
        Validator(_are_assignors, "a comma-separated list of uniform, range"),
    ),
    fixed_key(
        "group.consumer.migration.policy",
        ConfigType.STRING,
        "bidirectional",
        "Directions in which a group with members may change between the classic and the consumer "
        "protocol.",
        Validator(_is_policy, ", ".join(_POLICIES)),
    ),
    ConfigKey(
        "group.consumer.regex.refresh.interval.ms",
        ConfigType.INT,
        "600000",
        "Interval, in milliseconds, between evaluations of the regular expressions that members "
        "subscribe to.",
        at_least(10_000),
        internal=True,
    ),
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
