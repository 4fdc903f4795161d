"""Independent readers of topics and of committed offsets, by confluent-kafka."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import Consumer, KafkaException, TopicPartition

from delivered import delivered
from endurance.history import Stored
from waiting import eventually

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
_TIMEOUT_S = 60.0


def _consumer(bootstrap: str, group: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "check.crcs": True,
            "log_level": 0,
            "fetch.wait.max.ms": 20,
        }
    )


def ends_of(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """High watermarks."""
    with closing(_consumer(bootstrap, "nobody", UNCOMMITTED)) as consumer:
        return {
            index: consumer.get_watermark_offsets(TopicPartition(topic, index), _TIMEOUT_S)[1]
            for index in range(partitions)
        }


def read_topic(bootstrap: str, topic: str, partitions: int, isolation: str) -> list[Stored]:
    """Return every record from offset 0 to the end, while no producer appends."""
    ends = ends_of(bootstrap, topic, partitions)
    with closing(_consumer(bootstrap, "nobody", isolation)) as consumer:
        consumer.assign([TopicPartition(topic, index, 0) for index in ends])
        found: list[Stored] = []

        def is_read() -> bool:
            for message in consumer.consume(5000, 0.2):
                if message.error() is not None:
                    raise KafkaException(message.error())
                partition, offset, value = delivered(message)
                found.append(Stored(partition, offset, value.decode()))
            entries = consumer.position([TopicPartition(topic, index) for index in ends])
            return all(max(entry.offset, 0) >= ends[entry.partition] for entry in entries)

        eventually(is_read, 180, f"{topic} was read to its end")
    return sorted(found)


def committed_of(
    bootstrap: str, group: str, topic: str, partitions: int
) -> dict[tuple[str, int], int]:
    with closing(_consumer(bootstrap, group, COMMITTED)) as consumer:
        wanted = [TopicPartition(topic, index) for index in range(partitions)]
        found = consumer.committed(wanted, _TIMEOUT_S)
        return {(group, entry.partition): entry.offset for entry in found}


def commit_start(bootstrap: str, group: str, topic: str, partitions: int) -> None:
    """Lets a group begin at offset 0 of each partition."""
    offsets = [TopicPartition(topic, index, 0) for index in range(partitions)]
    with closing(_consumer(bootstrap, group, COMMITTED)) as consumer:
        consumer.commit(offsets=offsets, asynchronous=False)
