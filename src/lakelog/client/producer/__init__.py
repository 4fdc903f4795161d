"""The producer and what it returns."""

from __future__ import annotations

from lakelog.client.producer.api import Producer
from lakelog.client.producer.results import Delivery, RecordMetadata
from lakelog.client.producer.transactional import TransactionalProducer

__all__ = ["Delivery", "Producer", "RecordMetadata", "TransactionalProducer"]
