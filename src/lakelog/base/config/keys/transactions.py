"""Apache Kafka's broker keys of transactions.

Names, types, defaults and bounds follow `TransactionLogConfig` and `TransactionStateManagerConfig`
of Kafka 4.3.1. Replication factor and minimum ISR are 1, as one broker alone needs;
where they are not set, `server/topics/topics.py` chooses higher ones in a cluster.
"""

from __future__ import annotations

from lakelog.base.config.rows import parse_keys

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
