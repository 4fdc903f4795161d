"""Reading: exact ranges of partitions, and consumer groups."""

from __future__ import annotations

from lakelog.client.consumer.api import Consumer
from lakelog.client.consumer.fetcher import FetchLimits
from lakelog.client.consumer.positions import ConsumerRecord
from lakelog.client.consumer.reader import PartitionReader

__all__ = ["Consumer", "ConsumerRecord", "FetchLimits", "PartitionReader"]
