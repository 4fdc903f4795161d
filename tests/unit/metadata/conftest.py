from __future__ import annotations

import pytest

from doubles.randomness import SeededRandom
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerRecord, PartitionRecord, TopicRecord

TOPIC_ID = b"t" * 16


@pytest.fixture
def random() -> SeededRandom:
    return SeededRandom(1)


@pytest.fixture
def image() -> MetadataImage:
    """Three brokers, each its own rack, and a topic `orders` of two partitions."""
    return MetadataImage().apply_all(
        [
            *(BrokerRecord(n, bytes([n]) * 16, 1, (), f"rack-{n}") for n in (1, 2, 3)),
            TopicRecord("orders", TOPIC_ID),
            PartitionRecord(TOPIC_ID, 0, (1, 2), (1, 2), 1, 0, 0),
            PartitionRecord(TOPIC_ID, 1, (2, 3), (2, 3), 2, 0, 0),
        ],
        1,
    )
