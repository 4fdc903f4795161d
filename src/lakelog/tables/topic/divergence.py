"""Finds partitions whose log was cut below a known offset and may have grown again.

Such a log looks complete: its end is the same or higher, but some offsets now belong to other
records. Only the leader epochs that are stored with known offsets reveal it (`client/offsets.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from lakelog.client.offsets import EpochEnd
from lakelog.tables.topic.offsets import StreamOffset, TopicPartition, items


class EpochSource(Protocol):
    """The part of `TopicClient` that sends OffsetForLeaderEpoch."""

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        """Return where the given leader epoch of each partition ends in the present log.

        Raises `KafkaError` if a leader does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Divergence:
    """A partition whose log no longer holds the records that were read below `offset`.

    epoch: the leader epoch that was stored with `offset`. epoch_end: where it ends in the log; if
    the log lacks it, the largest epoch before it.
    """

    topic: str
    partition: int
    offset: int
    epoch: int
    epoch_end: EpochEnd

    @property
    def restart(self) -> int | None:
        """The first offset that may now belong to another record; `None` if it is unknown."""
        return None if self.epoch_end.end_offset < 0 else self.epoch_end.end_offset

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        read = f"read up to offset {self.offset} in leader epoch {self.epoch}"
        if self.restart is None:
            return f"the log of {where} was replaced: {read}, an epoch that it no longer has"
        return (
            f"the log of {where} was cut and grew again: {read}, but epoch {self.epoch_end.epoch} "
            f"ends at {self.epoch_end.end_offset}. The records from there on were lost or replaced"
        )


def find_divergences(source: EpochSource, point: StreamOffset) -> list[Divergence]:
    """Compare each offset of `point` that has a leader epoch with the log; return the divergences.

    The caller has checked that the topics have the ids in `point.topic_ids`. Raises `KafkaError` if
    a leader does not answer. Source: KIP-320.
    """
    positions = {
        key: (offset, point.epochs[key[0]][key[1]])
        for key, offset in items(point.offsets)
        if key[1] in point.epochs.get(key[0], {})
    }
    ends = source.epoch_ends({key: epoch for key, (_, epoch) in positions.items()})
    return [
        Divergence(topic, partition, offset, epoch, ends[topic, partition])
        for (topic, partition), (offset, epoch) in positions.items()
        if ends[topic, partition].end_offset < offset
    ]
