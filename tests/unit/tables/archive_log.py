"""A stand-in for `TopicClient` that answers from a few numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lakelog.client.offsets import EpochEnd, OffsetAt
from lakelog.tables.topic.client import TopicMeta
from lakelog.tables.topic.offsets import TopicPartition

EPOCH = 4
"""The leader epoch of all partitions."""


class Log:
    """Where a broker's partitions begin and end, and how far their earlier epochs reach."""

    def __init__(
        self,
        ends: dict[int, int],
        starts: dict[int, int] | None = None,
        earlier: dict[int, int] | None = None,
    ) -> None:
        self.ends = ends
        self.starts = starts or {}
        self.earlier = earlier or {}
        self.topic_id = "id"
        self.keys: dict[str, str | None] = {}

    def describe(self, names: Iterable[str]) -> dict[str, TopicMeta]:
        return {name: TopicMeta(name, self.topic_id, tuple(self.ends)) for name in names}

    def configs(
        self, names: Iterable[str], keys: Collection[str]
    ) -> dict[str, dict[str, str | None]]:
        found = {key: value for key, value in self.keys.items() if key in keys}
        return dict.fromkeys(names, found)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {key: self.starts.get(key[1], 0) for key in partitions}

    def log_end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {key: self.ends[key[1]] for key in partitions}

    def latest_places(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAt]:
        return {key: OffsetAt(self.ends[key[1]], -1, EPOCH) for key in partitions}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        return {
            key: EpochEnd(epoch, self.earlier.get(key[1], self.ends[key[1]]))
            for key, epoch in epochs.items()
        }

    def bytes_per_offset(self, topic: str, partition: int, start: int, end: int) -> float:
        return 1.0
