"""A stand-in for `TopicClient` that answers from the bounds of a few partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakelog.client.offsets import EARLIEST, LATEST, EpochEnd, OffsetAt
from lakelog.tables.topic.client import TopicMeta
from lakelog.tables.topic.offsets import TopicPartition

EPOCH = 4
"""The leader epoch of all partitions."""


class Log:
    """Topics with the ends of their partitions. Record n has the timestamp n."""

    def __init__(self, **ends: list[int]) -> None:
        self.ends = ends
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def topics(self) -> dict[str, TopicMeta]:
        return {
            name: TopicMeta(name, f"{name}-id", tuple(range(len(ends))))
            for name, ends in self.ends.items()
        }

    def find(self, names: Iterable[str]) -> dict[str, TopicMeta]:
        known = self.topics()
        return {name: known[name] for name in names if name in known}

    def missing_text(self, name: str) -> str:
        return f"topic {name!r} does not exist"

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def latest_places(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAt]:
        return self.places(dict.fromkeys(partitions, LATEST))

    def log_end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {(topic, partition): self.ends[topic][partition] for topic, partition in partitions}

    def places(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        return {key: self._place(self.ends[key[0]][key[1]], at) for key, at in wanted.items()}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        return {
            (topic, partition): EpochEnd(epoch, self.ends[topic][partition])
            for (topic, partition), epoch in epochs.items()
        }

    def bytes_per_offset(self, topic: str, partition: int, start: int, end: int) -> float:
        return 100.0

    @staticmethod
    def _place(end: int, at: int) -> OffsetAt:
        if at == LATEST:
            return OffsetAt(end, -1, EPOCH)
        start = 0 if at == EARLIEST else at
        return OffsetAt(start, start, EPOCH) if start < end or not start else OffsetAt(-1, -1, -1)
