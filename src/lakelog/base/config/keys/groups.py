"""The broker keys of classic groups and committed offsets.

Names, types, defaults and bounds follow `AbstractKafkaConfig` of Kafka 4.3.1.
"""

from __future__ import annotations

from lakelog.base.config.key import ConfigType, at_least, fixed_key

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
