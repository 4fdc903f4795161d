"""Offsets of many partitions, in memory and as the JSON of streaming checkpoints.

The JSON is that of the official Kafka connector, `{"topic": {"partition": offset}}`: a query can
start from a checkpoint that `format("kafka")` wrote, and return to it. Topic ids and leader epochs
are stored in the name of an additional topic without partitions, `"name@id@0:5,1:7": {}`. A topic's
name cannot contain `@`, and the official connector ignores a topic without partitions. The id
distinguishes a topic from its successor of the same name. The epochs show that a log
lost its tail and grew again (`divergence.py`). Older checkpoints have `"name@id": {}`, without
epochs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

ABOUT = "@"
"""The name of an entry about the source itself, in offsets that it reports to listeners."""
LATEST_OFFSET = -1
EARLIEST_OFFSET = -2

Offsets = dict[str, dict[int, int]]
"""Topic to partition to offset (the next one to read)."""

Epochs = dict[str, dict[int, int]]
"""Topic to partition to leader epoch: no record below the partition's offset has a later epoch."""

TimestampsByPartition = dict[str, dict[int, int]]
"""Topic to partition to milliseconds since the epoch."""

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class StreamOffset:
    """A point in a stream: offsets, the ids of the topics they belong to, and leader epochs.

    Ids and epochs may be missing. `to_json` keeps epochs only of topics that have an id.
    """

    offsets: Offsets = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    epochs: Epochs = field(default_factory=dict)

    def epoch_of(self, key: TopicPartition) -> int | None:
        """Return the leader epoch of a partition's offset, or `None` if it is unknown (KIP-320)."""
        return self.epochs.get(key[0], {}).get(key[1])

    def is_of(self, topic: str, topic_id: str) -> bool:
        """Return whether these may be offsets of the topic with that id.

        Offsets without ids come from checkpoints of the official connector and match any topic.
        """
        return not topic_id or self.topic_ids.get(topic) in (None, "", topic_id)

    def to_json(self) -> dict[str, dict[str, int]]:
        """Return an ordered value: Spark compares points by their text."""
        entries: dict[str, dict[str, int]] = {
            topic: {str(partition): offset for partition, offset in sorted(partitions.items())}
            for topic, partitions in self.offsets.items()
        }
        entries.update({self._identity(topic): {} for topic in self.topic_ids})
        return dict(sorted(entries.items()))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Return the point of a checkpoint. Raises `ValueError` for another shape."""
        point = cls(_checked({name: inner for name, inner in value.items() if "@" not in name}))
        for name in value:
            if "@" in name and name != ABOUT:
                topic, topic_id, epochs = (name + "@").split("@")[:3]
                point.topic_ids[topic] = topic_id
                if epochs:
                    point.epochs[topic] = _parse_epochs(epochs, name)
        return point

    def _identity(self, topic: str) -> str:
        epochs = sorted(self.epochs.get(topic, {}).items())
        text = ",".join(f"{partition}:{epoch}" for partition, epoch in epochs)
        return f"{topic}@{self.topic_ids[topic]}" + (f"@{text}" if text else "")


def parse_offsets(text: str) -> Offsets:
    """Parse offsets or timestamps by topic and partition. Raises `ValueError`.

    Timestamps are in milliseconds since the epoch.
    """
    value = _json(text)
    if not isinstance(value, dict) or not value:
        raise ValueError(f'expected JSON such as {{"topic": {{"0": 23, "1": -2}}}}, not {text!r}')
    return _checked(value)


def parse_point(text: str) -> StreamOffset:
    """Parse the offsets of a checkpoint or of a query's progress; ids and epochs are optional.

    Raises `ValueError`.
    """
    value = _json(text)
    if not isinstance(value, dict) or not value:
        raise ValueError(f'expected JSON such as {{"topic": {{"0": 23, "1": -2}}}}, not {text!r}')
    return StreamOffset.from_json(value)


def parse_assign(text: str) -> tuple[TopicPartition, ...]:
    """Parse `{"topic": [0, 1]}` into (topic, partition) pairs. Raises `ValueError`."""
    value = _json(text)
    if not isinstance(value, dict) or not value:
        raise ValueError(f'expected JSON such as {{"topic": [0, 1]}}, not {text!r}')
    assigned: list[TopicPartition] = []
    for topic, partitions in value.items():
        if not isinstance(partitions, list) or not all(_is_int(p) and p >= 0 for p in partitions):
            raise ValueError(f"the partitions of {topic!r} must be a list of whole numbers")
        assigned.extend((topic, partition) for partition in partitions)
    return tuple(dict.fromkeys(assigned))


def items(offsets: Offsets) -> Iterator[tuple[TopicPartition, int]]:
    """Yield every partition with its offset, in order."""
    for topic in sorted(offsets):
        for partition in sorted(offsets[topic]):
            yield (topic, partition), offsets[topic][partition]


def from_items(pairs: Mapping[TopicPartition, int]) -> Offsets:
    """Return the nested form of a flat mapping."""
    offsets: Offsets = {}
    for (topic, partition), offset in pairs.items():
        offsets.setdefault(topic, {})[partition] = offset
    return offsets


def _parse_epochs(text: str, name: str) -> dict[int, int]:
    epochs: dict[int, int] = {}
    for item in text.split(","):
        partition, _, epoch = item.partition(":")
        if not (partition.isdecimal() and epoch.isdecimal()):
            raise ValueError(
                f"{name!r}: expected a partition and a leader epoch such as 0:5, not {item!r}"
            )
        epochs[int(partition)] = int(epoch)
    return epochs


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON ({error}): {text!r}") from None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _checked(value: Mapping[str, Any]) -> Offsets:
    offsets: Offsets = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"the partitions of {topic!r} must be an object")
        offsets[topic] = {}
        for partition, offset in partitions.items():
            if not partition.isdecimal() or not _is_int(offset):
                raise ValueError(
                    f"{topic!r}: expected a partition and its offset, not {partition!r}: {offset!r}"
                )
            offsets[topic][int(partition)] = offset
    return offsets
