"""Broker settings of the transaction coordinator: Kafka's keys and defaults."""

from __future__ import annotations

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.coordinator.transaction.config import TransactionConfig


def test_both_have_the_same_defaults() -> None:
    """Tests and tools without a broker's configuration decide as a broker does."""
    assert TransactionConfig.from_broker(BrokerConfig({})) == TransactionConfig()


def test_each_key_sets_its_own_field() -> None:
    values = {
        "transaction.max.timeout.ms": "1000",
        "transactional.id.expiration.ms": "2000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "3000",
        "lakelog.transactional.ids.max": "4",
        "transaction.state.log.num.partitions": "5",
        "message.max.bytes": "6000",
    }
    assert TransactionConfig.from_broker(BrokerConfig(values)) == TransactionConfig(
        timeout_max_ms=1000,
        id_expiration_ms=2000,
        id_expiration_check_ms=3000,
        ids_max=4,
        partitions=5,
        batch_bytes_max=6000,
    )
