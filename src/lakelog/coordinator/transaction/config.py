"""The broker configuration of the transaction coordinator, under Kafka's keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Values(Protocol):
    """The broker's configuration."""

    def get_int(self, name: str) -> int: ...


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Settings of the transaction coordinator; times in milliseconds, sizes in bytes.

    The defaults equal Apache Kafka 4.4.
    """

    timeout_max_ms: int = 900_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    id_expiration_check_ms: int = 3_600_000
    ids_max: int = 100_000
    partitions: int = 50
    batch_bytes_max: int = 1_048_588

    @staticmethod
    def from_broker(values: Values) -> TransactionConfig:
        """Return the settings of a broker."""
        return TransactionConfig(
            timeout_max_ms=values.get_int("transaction.max.timeout.ms"),
            id_expiration_ms=values.get_int("transactional.id.expiration.ms"),
            id_expiration_check_ms=values.get_int(
                "transaction.remove.expired.transaction.cleanup.interval.ms"
            ),
            ids_max=values.get_int("lakelog.transactional.ids.max"),
            partitions=values.get_int("transaction.state.log.num.partitions"),
            batch_bytes_max=values.get_int("message.max.bytes"),
        )
