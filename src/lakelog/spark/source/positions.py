"""Resolves positions (earliest, a time, offsets) into offsets with the help of the cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakelog.client.offsets import OffsetAt
from lakelog.spark.source.options import AtTimestamp, AtTimestamps, Boundary, Position, Subscription
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import OptionError, TopicMissingError
from lakelog.tables.topic.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Offsets,
    StreamOffset,
    TopicPartition,
    from_items,
    items,
)


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The existing part of a subscription.

    topic_ids: by name. partitions: in order. missing: an error text for each topic that does not
    exist or lacks a partition.
    """

    topic_ids: dict[str, str]
    partitions: list[TopicPartition]
    missing: dict[str, str]

    def complete(self) -> Subscribed:
        """Return self. Raises `TopicMissingError` if a topic or partition is missing."""
        if self.missing:
            raise TopicMissingError(next(iter(self.missing.values())))
        return self


def find_topics(client: TopicClient, subscription: Subscription) -> Subscribed:
    """Return the present state of a subscription's topics. Raises `KafkaError`."""
    missing: dict[str, str] = {}
    if subscription.pattern:
        matches = re.compile(subscription.pattern).fullmatch
        metas = {name: meta for name, meta in client.topics().items() if matches(name)}
    else:
        names = sorted({*subscription.topics, *(topic for topic, _ in subscription.partitions)})
        metas = client.find(names)
        missing = {name: client.missing_text(name) for name in names if name not in metas}
    existing = [(meta.name, p) for meta in metas.values() for p in meta.partitions]
    for topic, partition in subscription.partitions:
        if topic in metas and (topic, partition) not in existing:
            missing[topic] = f"topic {topic!r} has no partition {partition}"
    selected = set(subscription.partitions or existing)
    ids = {meta.name: meta.topic_id for meta in metas.values()}
    return Subscribed(ids, sorted(selected & set(existing)), missing)


def resolve(
    client: TopicClient,
    position: Position,
    subscribed: Subscribed,
    *,
    latest_if_no_timestamp: bool = True,
) -> StreamOffset:
    """Return an offset for each partition, with its leader epoch if that is known.

    latest_if_no_timestamp: use the end of a partition that has no record at or after the time.
    Raises `OptionError` if the position does not match the partitions, and `KafkaError`.
    """
    partitions = subscribed.partitions
    if isinstance(position, Boundary):
        time = EARLIEST_OFFSET if position is Boundary.EARLIEST else LATEST_OFFSET
        return _point(client.places(dict.fromkeys(partitions, time)), subscribed)
    if isinstance(position, AtTimestamp):
        timestamps = dict.fromkeys(partitions, position.timestamp_ms)
        return _point(_at_timestamps(client, timestamps, latest_if_no_timestamp), subscribed)
    if isinstance(position, AtTimestamps):
        _check_same_partitions(position.timestamps_ms, partitions)
        timestamps = dict(items(position.timestamps_ms))
        return _point(_at_timestamps(client, timestamps, latest_if_no_timestamp), subscribed)
    _check_same_partitions(position.offsets, partitions)
    return _given(client, position, subscribed)


def _point(places: Mapping[TopicPartition, OffsetAt], subscribed: Subscribed) -> StreamOffset:
    offsets = {key: at.offset for key, at in places.items()}
    epochs = {key: at.leader_epoch for key, at in places.items() if at.leader_epoch >= 0}
    return StreamOffset(from_items(offsets), subscribed.topic_ids, from_items(epochs))


def _check_same_partitions(given: Offsets, partitions: list[TopicPartition]) -> None:
    named = {tp for tp, _ in items(given)}
    if named != set(partitions):
        missing = sorted(set(partitions) - named) + sorted(named - set(partitions))
        text = ", ".join(f"{topic}-{partition}" for topic, partition in missing)
        raise OptionError(
            f"offsets in JSON must name exactly the partitions of the query; differing: {text}"
        )


def _at_timestamps(
    client: TopicClient, timestamps: dict[TopicPartition, int], latest_if_none: bool
) -> dict[TopicPartition, OffsetAt]:
    places = client.places(timestamps)
    missing = [tp for tp, at in places.items() if at.offset < 0]
    if missing and not latest_if_none:
        text = ", ".join(f"{topic}-{partition}" for topic, partition in missing)
        raise OptionError(
            f"no record at or after the given time in {text}. Set the option "
            "startingOffsetsByTimestampStrategy=latest to start these partitions at their end"
        )
    return {**places, **client.latest_places(missing)}


def _given(client: TopicClient, given: StreamOffset, subscribed: Subscribed) -> StreamOffset:
    """Return the given point with its ids and epochs; -1 and -2 are resolved into offsets."""
    specials = {key: at for key, at in items(given.offsets) if at < 0}
    asked = _point(client.places(specials), subscribed)
    epochs = {key: epoch for key, epoch in items(given.epochs) if key not in specials}
    return StreamOffset(
        from_items({**dict(items(given.offsets)), **dict(items(asked.offsets))}),
        {**subscribed.topic_ids, **given.topic_ids},
        from_items({**epochs, **dict(items(asked.epochs))}),
    )
