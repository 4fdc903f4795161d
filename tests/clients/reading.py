"""Reads a known number of records, no more and no fewer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from clients.adapters.api import Client, Consumer, Received
from waiting import eventually


def poll_count(consumer: Consumer, count: int) -> list[Received]:
    """Exactly `count` records, in the order received."""
    received: list[Received] = []

    def have_come() -> bool:
        received.extend(consumer.poll(0.2))
        return len(received) >= count

    eventually(have_come, what=lambda: f"{count} records, of which {len(received)} came")
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
