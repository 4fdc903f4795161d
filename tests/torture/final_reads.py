"""Committed offsets and whole topics, as an independent client finds them."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from torture.client_process import READERS, TRANSFORM, UNCOMMITTED
from torture.consuming import SETTINGS, NotingConsumer, partition_name
from torture.history import COMMITTED, INFO, OK
from torture.journal import Journal
from torture.servers import NUMBERS, PARTITIONS
from waiting import eventually

GROUPS = (READERS, TRANSFORM)
_TIMEOUT_S = 20.0
_READ_S = 180.0


class Offsets:
    """The committed offsets of both groups."""

    def __init__(self, bootstrap: str, journal: Journal) -> None:
        self._journal = journal
        self._partitions = [TopicPartition(NUMBERS, index) for index in range(PARTITIONS)]
        self._consumers = {
            group: Consumer({**SETTINGS, "bootstrap.servers": bootstrap, "group.id": group})
            for group in GROUPS
        }

    def commit_start(self) -> None:
        """Let the groups begin at offset 0 of each partition."""
        offsets = [TopicPartition(NUMBERS, index, 0) for index in range(PARTITIONS)]
        for consumer in self._consumers.values():
            consumer.commit(offsets=offsets, asynchronous=False)

    def ask(self) -> dict[tuple[str, str], int]:
        """Return and note the offsets by group and partition; no group whose request failed."""
        found: dict[tuple[str, str], int] = {}
        for group, consumer in self._consumers.items():
            number = self._journal.invoke("committed", group=group)
            try:
                answers = consumer.committed(self._partitions, _TIMEOUT_S)
                commits = {partition_name(NUMBERS, each.partition): each.offset for each in answers}
            except KafkaException:
                self._journal.end(number, INFO)
                continue
            self._journal.end(number, OK, commits=commits)
            found |= {(group, name): offset for name, offset in commits.items()}
        return found

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()


def append_last(bootstrap: str, journal: Journal, topics: Iterable[str]) -> dict[str, int]:
    """Append a record to each partition; return its offset by partition."""
    producer = Producer({**SETTINGS, "bootstrap.servers": bootstrap, "enable.idempotence": True})
    found: dict[str, int] = {}
    for topic in topics:
        for index in range(PARTITIONS):
            name = partition_name(topic, index)
            value = f"last/{name}"
            number = journal.invoke("send", records=[(name, value)])

            def on_delivery(
                error: KafkaError | None, message: Message, name: str = name, number: int = number
            ) -> None:
                if error is None and (offset := message.offset()) is not None:
                    journal.end(number, OK, offsets=[offset])
                    found[name] = offset

            producer.produce(topic, value, partition=index, on_delivery=on_delivery)
    producer.flush(_READ_S)
    return found


def read_to_last(bootstrap: str, journal: Journal, ends: dict[str, int]) -> None:
    """Note all records up to these offsets, at both isolation levels."""
    for isolation in (COMMITTED, UNCOMMITTED):
        consumer = NotingConsumer(journal, bootstrap, isolation=isolation)
        partitions = [name.rpartition("-") for name in ends]
        consumer.assign([TopicPartition(topic, int(index), 0) for topic, _, index in partitions])
        missing = dict(ends)

        def is_read(consumer: NotingConsumer = consumer, missing: dict[str, int] = missing) -> bool:
            for name, offset, _ in consumer.receive():
                if offset >= ends[name]:
                    missing.pop(name, None)
            return not missing

        eventually(is_read, _READ_S, f"all records were read {isolation}")
        consumer.close()
