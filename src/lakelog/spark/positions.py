"""Turns positions (earliest, a time, given offsets) into offsets, by asking the broker."""

from __future__ import annotations

import re

from lakelog.spark.broker import Broker, TopicMeta
from lakelog.spark.errors import OptionError, TopicMissingError
from lakelog.spark.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Offsets,
    TopicPartition,
    from_items,
    items,
)
from lakelog.spark.options import (
    AtTimestamp,
    AtTimestamps,
    Boundary,
    Position,
    Subscription,
)


def find_topics(
    broker: Broker, subscription: Subscription
) -> tuple[dict[str, TopicMeta], list[TopicPartition]]:
    """The topics of a subscription, and their partitions in order. Raises `TopicMissingError`."""
    if subscription.pattern:
        matches = re.compile(subscription.pattern).fullmatch
        metas = {name: meta for name, meta in broker.topics().items() if matches(name)}
    else:
        names = subscription.topics or {topic for topic, _ in subscription.partitions}
        metas = broker.describe(sorted(names))
    existing = [(meta.name, p) for meta in metas.values() for p in meta.partitions]
    for topic, partition in subscription.partitions:
        if (topic, partition) not in existing:
            raise TopicMissingError(f"topic {topic!r} has no partition {partition}")
    return metas, sorted(subscription.partitions or existing)


def resolve(
    broker: Broker,
    position: Position,
    partitions: list[TopicPartition],
    *,
    latest_if_no_timestamp: bool = True,
) -> Offsets:
    """An offset for each of `partitions`. Raises `OptionError` when the position does not fit."""
    if isinstance(position, Boundary):
        earliest = position is Boundary.EARLIEST
        return from_items(broker.earliest(partitions) if earliest else broker.latest(partitions))
    if isinstance(position, AtTimestamp):
        wanted = dict.fromkeys(partitions, position.timestamp_ms)
        return _at_timestamps(broker, wanted, latest_if_no_timestamp)
    if isinstance(position, AtTimestamps):
        _check_same_partitions(position.timestamps_ms, partitions)
        return _at_timestamps(broker, dict(items(position.timestamps_ms)), latest_if_no_timestamp)
    _check_same_partitions(position, partitions)
    return _fill_specials(broker, dict(items(position)))


def _check_same_partitions(given: Offsets, partitions: list[TopicPartition]) -> None:
    named = {tp for tp, _ in items(given)}
    if named != set(partitions):
        missing = sorted(set(partitions) - named) + sorted(named - set(partitions))
        text = ", ".join(f"{topic}-{partition}" for topic, partition in missing)
        raise OptionError(
            f"offsets given as JSON must name exactly the partitions that are read; differs: {text}"
        )


def _at_timestamps(
    broker: Broker, wanted: dict[TopicPartition, int], latest_if_none: bool
) -> Offsets:
    found = broker.at_timestamps(wanted)
    missing = [tp for tp in wanted if found.get(tp) is None]
    if missing and not latest_if_none:
        text = ", ".join(f"{topic}-{partition}" for topic, partition in missing)
        raise OptionError(
            f"no record at or after the given time in {text} (the option "
            "startingOffsetsByTimestampStrategy=latest starts these at their end)"
        )
    latest = broker.latest(missing)
    return from_items({tp: latest[tp] if tp in latest else _known(found[tp]) for tp in wanted})


def _known(offset: int | None) -> int:
    assert offset is not None
    return offset


def _fill_specials(broker: Broker, given: dict[TopicPartition, int]) -> Offsets:
    earliest = broker.earliest([tp for tp, offset in given.items() if offset == EARLIEST_OFFSET])
    latest = broker.latest([tp for tp, offset in given.items() if offset == LATEST_OFFSET])
    return from_items({**given, **earliest, **latest})
