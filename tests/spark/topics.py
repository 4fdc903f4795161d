"""Topics of Spark tests: their records, and when these were made."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from clients.adapters.transactions import ConfluentTransactional
from lakelog.client.producer.api import Producer
from schema_registry import Registry

MakeTopic = Callable[..., str]

START_MS = (int(time.time()) - 3600) * 1000
"""Of the first record. Were it long ago, the broker would soon forget the records' producers
(`producer.id.expiration.ms`), and the shared broker's snapshots would not be what its logs say."""


def produce(bootstrap: str, topic: str, numbers: range, *, partitions: int = 3) -> None:
    """Record i goes to partition i % partitions at START_MS + i, with a header if i is even."""
    with Producer(bootstrap) as producer:
        for i in numbers:
            producer.send(
                topic,
                f"v{i}".encode(),
                f"k{i}".encode() if i % 5 else None,
                headers=() if i % 2 else (("n", b"%d" % i), ("empty", None)),
                partition=i % partitions,
                timestamp_ms=START_MS + i,
            )


TYPED = [7, -3]
"""The field `id` of the values of `produce_typed`."""


def produce_typed(bootstrap: str, topic: str, registry: Registry) -> None:
    """Send Avro values, each behind the id of its schema, to partition 0."""
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    prefix = struct.pack(">bI", 0, registry.register(f"{topic}-value", schema))
    with Producer(bootstrap) as producer:
        for number in TYPED:
            zigzag = number << 1 if number >= 0 else ~(number << 1)
            producer.send(topic, prefix + bytes([zigzag]), partition=0)


@contextmanager
def open_transaction(bootstrap: str, topic: str) -> Iterator[ConfluentTransactional]:
    """The producer of `open`, not committed yet, after 0 and 2, committed, and 1 and 3, aborted.

    Its transaction may be open for 15 minutes, the longest time that a broker allows by default.
    """
    with closing(ConfluentTransactional(bootstrap, topic, timeout_ms=900_000)) as producer:
        producer.init()
        for number in range(4):
            producer.begin()
            producer.send(topic, b"%d" % number)
            producer.abort() if number % 2 else producer.commit()
        producer.begin()
        producer.send(topic, b"open")
        yield producer
