"""Reading: exact ranges of partitions, and consumer groups."""

from __future__ import annotations

from lakelog.client.consumer.reader import PartitionReader

__all__ = ["PartitionReader"]
