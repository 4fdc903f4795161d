"""The broker keys of brokers that fail, and of replicas that fall behind.

Names, types, defaults and bounds follow `AbstractKafkaConfig` of Kafka 4.3.1.
"""

from __future__ import annotations

from lakelog.base.config.key import ConfigType, at_least, fixed_key

_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG

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
