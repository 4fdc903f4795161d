"""The producer, the transactional producer, and their results. Read `api.py` first."""

from __future__ import annotations

from lakelog.client.producer.api import Producer
from lakelog.client.producer.results import Delivery, RecordMetadata, TableDelivery, WrittenRows
from lakelog.client.producer.transactional import TransactionalProducer

__all__ = [
    "Delivery",
    "Producer",
    "RecordMetadata",
    "TableDelivery",
    "TransactionalProducer",
    "WrittenRows",
]
