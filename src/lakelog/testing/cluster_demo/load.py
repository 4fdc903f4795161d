"""A steady load by an idempotent producer of another project, and the records in the end."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from lakelog.testing.cluster_demo.proof import Acknowledged

_PAUSE_S = 0.002
_FLUSH_S = 60.0
_POLL_S = 60.0
_QUIET = {"log_level": 0}
_PRODUCER = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 2,
    "retry.backoff.ms": 50,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 250,
    "topic.metadata.refresh.fast.interval.ms": 50,
}


class Load:
    """Sends numbered records to all partitions in turn, from `start` to `stop`.

    Attributes:
        failed: the number of records that the producer gave up.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap} | _PRODUCER | _QUIET)
        self._topic = topic
        self._partitions = partitions
        self._begun = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[Acknowledged] = []
        self.sent = 0
        self.failed = 0

    def start(self) -> None:
        """Send from now on, which is the time 0."""
        self._begun = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more, and wait for the acknowledgements of all records."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
            self.failed += self._producer.flush(_FLUSH_S)

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun

    def _run(self) -> None:
        while not self._stopping.is_set():
            for partition in range(self._partitions):
                value = str(self.sent).encode()
                try:
                    self._producer.produce(
                        self._topic, value, partition=partition, on_delivery=self._delivered
                    )
                    self.sent += 1
                except BufferError:  # nothing is acknowledged, and the producer's queue is full
                    break
            self._producer.poll(_PAUSE_S)
            self._stopping.wait(_PAUSE_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and isinstance(value, bytes)
        self.acknowledged.append(Acknowledged(partition, offset, value, self.now_s))


def stored_records(
    bootstrap: str, topic: str, partitions: int
) -> dict[int, list[tuple[int, bytes]]]:
    """Return offset and value of all records, by partition. Raises `RuntimeError` at a timeout."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False}
    consumer = Consumer(settings | _QUIET)
    records: dict[int, list[tuple[int, bytes]]] = {}
    try:
        for partition in range(partitions):
            topic_partition = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(topic_partition, timeout=_POLL_S)
            rows = records[partition] = []
            consumer.assign([topic_partition])
            while len(rows) < end:
                messages = consumer.consume(min(10_000, end - len(rows)), _POLL_S)
                if not messages:
                    raise RuntimeError(f"no record of {topic}-{partition} at offset {len(rows)}")
                for message in messages:
                    offset, value = message.offset(), message.value()
                    if message.error() is None:
                        assert offset is not None and isinstance(value, bytes)
                        rows.append((offset, value))
    finally:
        consumer.close()
    return records
