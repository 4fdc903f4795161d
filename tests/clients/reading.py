"""Reads a known number of records, no more and no fewer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from clients.adapters.api import Client, Consumer, Received

TIMEOUT_S = 60.0


def poll_count(consumer: Consumer, count: int) -> list[Received]:
    """Exactly `count` records, in the order received."""
    received: list[Received] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(received) < count:
        received += consumer.poll(0.2)
        assert time.monotonic() < deadline, f"{len(received)} of {count} records came"
    received += consumer.poll(0.1)
    assert len(received) == count, f"{len(received)} records, not {count}"
    return received


def read(
    client: Client, topic: str, count: int, partitions: Sequence[int] = (0,)
) -> list[Received]:
    """The records of whole partitions, sorted by partition and offset."""
    with closing(client.consumer()) as consumer:
        consumer.assign(topic, partitions)
        received = poll_count(consumer, count)
    for index in partitions:
        offsets = [record.offset for record in received if record.partition == index]
        assert offsets == sorted(set(offsets)), f"partition {index} came as {offsets}"
    return sorted(received, key=lambda record: (record.partition, record.offset))
