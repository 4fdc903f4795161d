from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.producer.accumulator import Accumulator, Settings
from lakelog.client.producer.batch import PartitionQueue, ProducerBatch
from lakelog.client.producer.results import Delivery

DELIVERY_S = 100.0


LINGER_S = 0.5


def accumulator(**changes: object) -> Accumulator:
    values: dict[str, object] = {
        "codec": 0,
        "linger_s": LINGER_S,
        "delivery_timeout_s": DELIVERY_S,
        "max_in_flight": 5,
        "is_idempotent": True,
    }
    return Accumulator(Settings(**{**values, **changes}))  # type: ignore[arg-type]


def queue_of(acc: Accumulator, partition: int = 0) -> PartitionQueue:
    queue = acc.queue("t", partition)
    queue.producer_id, queue.producer_epoch = 7, 0
    return queue


def add(acc: Accumulator, queue: PartitionQueue, now: float = 0.0, count: int = 1) -> ProducerBatch:
    """A closed batch of `count` records."""
    batch = acc.open(queue, now)
    for _ in range(count):
        batch.builder.append(1, None, b"v")
    acc.close(queue)
    return batch


def test_a_delivery_counts_from_its_batch() -> None:
    acc = accumulator()
    batch = add(acc, queue := queue_of(acc), count=2)
    delivery = Delivery(batch.result, 1, 77)
    with pytest.raises(TimeoutError):
        delivery.result(0)
    acc.answer(acc.take(queue), ErrorCode.NONE, 0.0, base_offset=40)
    assert delivery.done
    assert delivery.result() == ("t", 0, 41, 77)
