"""Apache Kafka's broker keys of transactions.

Names, types, defaults and bounds follow `TransactionLogConfig` and `TransactionStateManagerConfig`
of Kafka 4.3.1. Replication factor and minimum ISR are 1, as one broker alone needs;
where they are not set, `server/topics/topics.py` chooses higher ones in a cluster.
"""

from __future__ import annotations

from lakelog.base.config.key import ConfigType, at_least, dynamic_key, fixed_key, rejected_key

_INT, _SHORT = ConfigType.INT, ConfigType.SHORT

TRANSACTION_KEYS = (
    fixed_key(
        "transaction.max.timeout.ms",
        _INT,
        "900000",
        "Maximum transaction timeout, in milliseconds, that a producer may request.",
        at_least(1),
    ),
    fixed_key(
        "transactional.id.expiration.ms",
        _INT,
        "604800000",
        "Time, in milliseconds, after which a transactional id without transactions expires.",
        at_least(1),
    ),
    fixed_key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        "3600000",
        "Interval, in milliseconds, between checks for expired transactional ids.",
        at_least(1),
    ),
    dynamic_key(
        "transaction.partition.verification.enable",
        ConfigType.BOOLEAN,
        "true",
        "Whether the coordinator verifies a partition before it accepts the first batch of a "
        "transaction (KIP-890).",
    ),
    fixed_key(
        "transaction.state.log.num.partitions",
        _INT,
        "50",
        "Number of partitions of __transaction_state; fixed after its creation.",
        at_least(1),
    ),
    fixed_key(
        "transaction.state.log.replication.factor",
        _SHORT,
        "1",
        "Replication factor of __transaction_state. If it is not set, a cluster uses 3, or the "
        "number of its brokers if they are fewer.",
        at_least(1),
    ),
    fixed_key(
        "transaction.state.log.min.isr",
        _INT,
        "1",
        "min.insync.replicas of __transaction_state. If it is not set, a topic of three or more "
        "replicas gets 2.",
        at_least(1),
    ),
    fixed_key(
        "transaction.state.log.segment.bytes",
        _INT,
        str(100 << 20),
        "Segment size of __transaction_state, in bytes.",
        at_least(1),
    ),
    rejected_key(
        "transaction.two.phase.commit.enable",
        ConfigType.BOOLEAN,
        "false",
        "two-phase commit with an external coordinator (KIP-939) is not supported",
    ),
)
