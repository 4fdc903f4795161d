"""Finds partitions whose log was cut below an offset that was read, and grew again since.

Such a log looks whole: its offsets reach as far as before or farther, but some belong to other
records now. The leader epochs beside the offsets show it (`client/epochs.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from lakelog.client.epochs import EpochEnd
from lakelog.tables.topic.offsets import StreamOffset, TopicPartition, items


class EpochSource(Protocol):
    """What is asked; a `TopicClient`."""

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        """Where the leader epoch of each partition ends in the log as it is now."""
        ...


@dataclass(frozen=True, slots=True)
class Divergence:
    """One partition whose log no longer holds what was read below `offset`.

    epoch: the one asked about. found: where it, or the largest epoch before it, ends.
    """

    topic: str
    partition: int
    offset: int
    epoch: int
    found: EpochEnd

    @property
    def restart(self) -> int | None:
        """The first offset whose record is another one; `None` if the log does not show it."""
        return None if self.found.end_offset < 0 else self.found.end_offset

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        known = f"read up to offset {self.offset} in leader epoch {self.epoch}"
        if self.restart is None:
            return f"the log of {where} was replaced: {known}, an epoch that it no longer has"
        return (
            f"the log of {where} was cut and grew again: {known}, but epoch {self.found.epoch} "
            f"ends at {self.found.end_offset}. The records from there on are lost, or others now"
        )


def find_divergences(source: EpochSource, point: StreamOffset) -> list[Divergence]:
    """Ask `source` about each offset of `point` that has an epoch; return what does not fit.

    The topics must be those of `point.topic_ids`. Raises `KafkaError` if they cannot be asked.
    """
    known = {
        key: (offset, point.epochs[key[0]][key[1]])
        for key, offset in items(point.offsets)
        if key[1] in point.epochs.get(key[0], {})
    }
    ends = source.epoch_ends({key: epoch for key, (_, epoch) in known.items()})
    return [
        Divergence(topic, partition, offset, epoch, ends[topic, partition])
        for (topic, partition), (offset, epoch) in known.items()
        if ends[topic, partition].end_offset < offset
    ]
