"""Apache Kafka's broker keys about transactions.

Names, types, defaults and bounds follow `TransactionLogConfig` and `TransactionStateManagerConfig`
of Kafka 4.3.1. One node is a whole cluster, so its replication factor and minimum are 1.
"""

from __future__ import annotations

from lakelog.base.config.key import ConfigKey, ConfigType, Effect, UpdateMode, at_least

_INT, _SHORT = ConfigType.INT, ConfigType.SHORT

TRANSACTION_KEYS = (
    ConfigKey(
        "transaction.max.timeout.ms",
        _INT,
        "900000",
        "Longest transaction timeout a producer may ask.",
        at_least(1),
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        _INT,
        "604800000",
        "Time a transactional id without a transaction is remembered.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        "3600000",
        "Time between two looks for expired transactional ids.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        ConfigType.BOOLEAN,
        "true",
        "Ask the coordinator before a partition takes the first batch of a transaction.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        _INT,
        "50",
        "Partitions of __transaction_state; fixed once it exists.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        _SHORT,
        "1",
        "Replicas of __transaction_state.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        _INT,
        "1",
        "Value of min.insync.replicas of __transaction_state.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        _INT,
        str(100 << 20),
        "Segment size of __transaction_state.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        ConfigType.BOOLEAN,
        "false",
        "",
        effect=Effect.REFUSED,
        reason="transactions have one coordinator (KIP-939 is not served)",
    ),
)
