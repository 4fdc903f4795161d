"""Losses of records that name more kept topics than an entry of the metadata log has room for.

`BrokerLost` names all topics of which a broker has lost nothing, and one record cannot be divided.
With too many of them, it is written as the new states of the partitions that it changes: these are
records of their own, in as many entries as they need (`transactions.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from lakelog.metadata.features import METADATA_VERSION, TRANSACTIONS_SINCE
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerLost, PartitionRecord, Record, encode_record
from lakelog.metadata.transactions import fits, line_bytes_max


def divided(
    image: MetadataImage, records: tuple[Record, ...], entry_bytes_max: int
) -> tuple[Record, ...]:
    """Return records with the same effect on `image`, without a `BrokerLost` that is too large.

    If the states are too many as well, or the finalized level has no changes of several entries, a
    loss names fewer topics: replicas of the others count as incomplete, although they are not. So
    no broker is kept from registering.
    """
    if not any(isinstance(record, BrokerLost) for record in records):
        return records
    line_max = line_bytes_max(entry_bytes_max)
    if image.feature_level(METADATA_VERSION) >= TRANSACTIONS_SINCE:
        states = _with_states(image, records, line_max)
        if fits([encode_record(record) for record in states], entry_bytes_max):
            return states
    else:
        others = [record for record in records if not isinstance(record, BrokerLost)]
        line_max = entry_bytes_max - sum(map(_size, others))
    return tuple(
        _cut(record, line_max) if isinstance(record, BrokerLost) else record for record in records
    )


def _with_states(
    image: MetadataImage, records: tuple[Record, ...], line_max: int
) -> tuple[Record, ...]:
    result: list[Record] = []
    for record in records:
        if isinstance(record, BrokerLost) and _size(record) > line_max:
            result += _states_after(image.apply_all(result, image.end + 1), record)
        else:
            result.append(record)
    return tuple(result)


def _states_after(image: MetadataImage, lost: BrokerLost) -> Iterator[PartitionRecord]:
    """Yield the new states of the partitions that a loss changes."""
    changed = image.apply_all([lost], image.end + 1)
    for topic in sorted(changed.topics, key=lambda topic: topic.name):
        former = image.topics_by_id[topic.topic_id]
        if topic is former:
            continue
        for number in range(len(topic.partitions)):
            state = topic.partitions[number]
            if state is not former.partitions[number]:
                yield PartitionRecord(topic.topic_id, *state)


def _cut(lost: BrokerLost, bytes_max: int) -> BrokerLost:
    """Return the loss with as many of its kept topics as fit `bytes_max`."""
    if _size(lost) <= bytes_max or not lost.kept_topics:
        return lost
    first = lost.kept_topics[:1]
    one, two = (_size(lost._replace(kept_topics=first * count)) for count in (1, 2))
    count = (bytes_max - one) // (two - one) + 1
    return lost._replace(kept_topics=lost.kept_topics[: max(count, 0)])


def _size(record: Record) -> int:
    return len(encode_record(record))
