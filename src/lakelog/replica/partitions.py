"""The partitions on this broker, kept equal to the metadata image.

Lookups are by topic name or by topic id, whichever a request carries. A topic that was deleted and
made again has another id, so a client that remembers the old one is told "unknown topic id".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lakelog.base.config.keys.topics import LONG_MAX
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.partition import Partition


class Partitions:
    def __init__(self) -> None:
        self._by_key: dict[tuple[str | bytes, int], Partition] = {}
        self._all: dict[Partition, None] = {}
        self.flushed_by_age: dict[Partition, None] = {}
        """Those with a `flush.ms`, in no order."""
        self._offline: dict[tuple[str | bytes, int], str] = {}
        self._known: Counter[bytes] = Counter()
        """Partitions by topic id."""

    def __iter__(self) -> Iterator[Partition]:
        """Each partition once."""
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def get(self, topic: str | bytes, index: int) -> Partition | None:
        return self._by_key.get((topic, index))

    def find(self, topic: str | bytes, index: int) -> Partition:
        """Raises `KafkaError`: UNKNOWN_TOPIC_OR_PARTITION, or UNKNOWN_TOPIC_ID for an id, or
        KAFKA_STORAGE_ERROR for a partition whose log cannot be used.
        """
        partition = self._by_key.get((topic, index))
        if partition is not None:
            return partition
        reason = self._offline.get((topic, index))
        if reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        if isinstance(topic, str) or self._known[topic]:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)

    def add(self, partition: Partition) -> None:
        key = partition.topic_id, partition.index
        self._known[partition.topic_id] += key not in self._by_key
        replaced = self._by_key.get(key)
        if replaced is not None:
            self._forget(replaced)
        self._by_key[partition.topic, partition.index] = partition
        self._by_key[key] = partition
        self._all[partition] = None
        self.note_config(partition)

    def note_config(self, partition: Partition) -> None:
        """The partition's configuration may have changed."""
        if partition.log.config.flush_ms < LONG_MAX:
            self.flushed_by_age[partition] = None
        else:
            self.flushed_by_age.pop(partition, None)

    def add_offline(self, topic: str, topic_id: bytes, index: int, reason: str) -> None:
        """The partition exists and its log cannot be used: corrupt is not absent."""
        self._known[topic_id] += (topic_id, index) not in self._offline
        self._offline[topic, index] = reason
        self._offline[topic_id, index] = reason

    def forget_offline(self, topic: str, topic_id: bytes, index: int | None = None) -> None:
        """The topic is gone, and with it its claim on the log; or one partition is not offline."""
        gone = [
            key for key in self._offline if key[0] in (topic, topic_id) and index in (None, key[1])
        ]
        for key in gone:
            del self._offline[key]
            self._forget_one(key[0])

    def offline(self) -> list[tuple[str, int, str]]:
        """Topic, index and reason of each that cannot be used."""
        found = [
            (topic, index, reason)
            for (topic, index), reason in self._offline.items()
            if isinstance(topic, str)
        ]
        return found + [
            (partition.topic, partition.index, partition.offline_reason)
            for partition in self
            if partition.offline_reason is not None
        ]

    @property
    def high_watermarks(self) -> dict[tuple[str, int], int]:
        """Of each partition now, by topic name and number."""
        return {(entry.topic, entry.index): entry.watermark.offset for entry in self}

    def marks(self) -> tuple[list[Partition], list[int], list[int], list[int]]:
        """All that the checkpoint files say of the partitions, to be compared with what it was.

        That takes a twentieth of the time in which what they say is put together.
        """
        every = list(self._all)
        logs = [entry.log for entry in every]
        return (
            every,
            [entry.watermark.offset for entry in every],
            [log.flushes.recovery_point for log in logs],
            [log.log_start_offset for log in logs],
        )

    def is_offline(self, topic: str, index: int) -> bool:
        return (topic, index) in self._offline

    def remove(self, partition: Partition) -> None:
        """Whoever holds the partition still is told that its topic is gone."""
        partition.retire()
        self._forget(partition)
        for key in ((partition.topic, partition.index), (partition.topic_id, partition.index)):
            if self._by_key.get(key) is partition:
                del self._by_key[key]
                self._forget_one(key[0])

    def _forget(self, partition: Partition) -> None:
        self._all.pop(partition, None)
        self.flushed_by_age.pop(partition, None)

    def _forget_one(self, topic: str | bytes) -> None:
        if isinstance(topic, bytes):
            self._known[topic] -= 1
            if not self._known[topic]:
                del self._known[topic]
