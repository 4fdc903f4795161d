"""The partitions on this broker, kept equal to the metadata image.

Lookups are by topic name or by topic id (KIP-516), whichever a request contains. A topic that was
deleted and created again has another id; a client that still uses the old id gets
UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from lakelog.base.config.keys.topics import LONG_MAX
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.partition import Partition
from lakelog.replica.role import NotLeaderError, Role
from lakelog.runtime.api import File
from lakelog.storage.files import parse_dir_name


class PartitionRegistry:
    """Partitions by topic name or id, and the reasons for which others are offline.

    Args:
        elsewhere: returns this broker's role in an existing partition that other brokers hold, or
            None for a partition that does not exist.
    """

    def __init__(
        self, elsewhere: Callable[[str | bytes, int], Role | None] = lambda topic, index: None
    ) -> None:
        self._elsewhere = elsewhere
        self._by_key: dict[tuple[str | bytes, int], Partition] = {}
        self._all: dict[Partition, None] = {}
        self.flushed_by_age: dict[Partition, None] = {}
        """Partitions with a `flush.ms`, in no particular order."""
        self._offline: dict[tuple[str | bytes, int], str] = {}
        self._failed: set[tuple[bytes, int]] = set()
        """Keys of partitions that have gone offline."""
        self._counts: Counter[bytes] = Counter()
        """Number of partitions, offline ones included, of each topic id."""

    def __iter__(self) -> Iterator[Partition]:
        """Each partition once."""
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def get(self, topic: str | bytes, index: int) -> Partition | None:
        """Return the replica in either role, or `None` if this broker has no usable log of it."""
        return self._by_key.get((topic, index))

    def leader(self, topic: str | bytes, index: int) -> Partition:
        """Return the partition if this broker leads it.

        Raises `NotLeaderError` if another broker does. Raises `KafkaError`: KAFKA_STORAGE_ERROR if
        its log cannot be used, UNKNOWN_TOPIC_ID for an unknown id, otherwise
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        partition = self._by_key.get((topic, index))
        if partition is not None:
            if not partition.serves:
                partition.check_leader()
            return partition
        reason = self._offline.get((topic, index))
        if reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        role = self._elsewhere(topic, index)
        if role is not None:
            raise NotLeaderError(role.leader_id, role.leader_epoch)
        if isinstance(topic, str) or self._counts[topic]:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)

    def add(self, partition: Partition) -> None:
        """Add a partition; it replaces an earlier one of the same topic id and index."""
        key = partition.topic_id, partition.index
        self._counts[partition.topic_id] += key not in self._by_key
        replaced = self._by_key.get(key)
        if replaced is not None:
            self._forget(replaced)
        self._by_key[partition.topic, partition.index] = partition
        self._by_key[key] = partition
        self._all[partition] = None
        self.note_config(partition)

    def note_config(self, partition: Partition) -> None:
        """Follow a change of the partition's configuration."""
        if partition.log.config.flush_ms < LONG_MAX:
            self.flushed_by_age[partition] = None
        else:
            self.flushed_by_age.pop(partition, None)

    def add_offline(self, topic: str, topic_id: bytes, index: int, reason: str) -> None:
        """Add a partition whose log cannot be used, so that it is not reported as unknown."""
        self._counts[topic_id] += (topic_id, index) not in self._offline
        self._offline[topic, index] = reason
        self._offline[topic_id, index] = reason

    def forget_offline(self, topic: str, topic_id: bytes, index: int | None = None) -> None:
        """Forget all offline partitions of a topic, or a single one."""
        gone = [
            key for key in self._offline if key[0] in (topic, topic_id) and index in (None, key[1])
        ]
        for key in gone:
            del self._offline[key]
            self._forget_one(key[0])

    def offline(self) -> list[tuple[str, int, str]]:
        """Return topic, index and reason of each partition whose log cannot be used."""
        unloaded = [
            (topic, index, reason)
            for (topic, index), reason in self._offline.items()
            if isinstance(topic, str)
        ]
        return unloaded + [
            (partition.topic, partition.index, partition.offline_reason)
            for partition in self
            if partition.offline_reason is not None
        ]

    @property
    def offline_keys(self) -> frozenset[tuple[bytes, int]]:
        """Topic id and index of each partition whose log cannot be used."""
        unusable = {
            (topic_id, index) for topic_id, index in self._offline if isinstance(topic_id, bytes)
        }
        return frozenset(self._failed | unusable)

    def note_offline(self, partition: Partition) -> None:
        """Add the partition to `offline_keys` if its log has failed."""
        if partition.offline_reason is not None and partition in self._all:
            self._failed.add(partition.key)

    def note_unreadable(self, file: File, error: OSError) -> None:
        """Have the partition fail whose log has this open file, as after any failed read.

        A file that its log has closed since is ignored: the next read opens it, and fails.
        """
        key = parse_dir_name(file.path.parent.name)
        partition = None if key is None else self._by_key.get(key)
        # By the file, not by its name, which the log of a later topic may have.
        if partition is not None and partition.is_online and partition.log.segments.reads(file):
            partition.storage_error(error)

    @property
    def high_watermarks(self) -> dict[tuple[str, int], int]:
        """Current high watermarks by topic name and partition index."""
        return {(entry.topic, entry.index): entry.watermark.offset for entry in self}

    def marks(self) -> tuple[list[Partition], list[int], list[int], list[int]]:
        """Return all values on which the checkpoint files depend.

        These are the partitions, their high watermarks, recovery points and log start offsets, in
        the same order. If they are unchanged since the last call, the files need not be written.
        Comparing them takes a twentieth of the time of composing the files.
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
        """Return whether the partition was added by `add_offline`."""
        return (topic, index) in self._offline

    def remove(self, partition: Partition) -> None:
        """Remove and retire a partition: callers that still hold it get an error for its topic."""
        self._forget(partition)
        for key in ((partition.topic, partition.index), (partition.topic_id, partition.index)):
            if self._by_key.get(key) is partition:
                del self._by_key[key]
                self._forget_one(key[0])
        partition.retire()  # after the removal, which waiting requests then find

    def _forget(self, partition: Partition) -> None:
        self._all.pop(partition, None)
        self._failed.discard(partition.key)
        self.flushed_by_age.pop(partition, None)

    def _forget_one(self, topic: str | bytes) -> None:
        if isinstance(topic, bytes):
            self._counts[topic] -= 1
            assert self._counts[topic] >= 0, "each partition is counted once"
            if not self._counts[topic]:
                del self._counts[topic]
