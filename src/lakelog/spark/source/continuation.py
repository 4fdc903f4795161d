"""Where a query begins, and where it continues after the point that it has read.

Since then topics may have been created, deleted, or deleted and created again, and a log may have
lost its tail and grown again. Changes that lose records are reported: as an error, or with
`failOnDataLoss=false` as a warning.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakelog.base.events import event
from lakelog.client.offsets import OffsetAt
from lakelog.spark.source.options import AtTimestamp, AtTimestamps, Boundary, Position, Subscription
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError, OptionError, TopicMissingError
from lakelog.tables.topic.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Offsets,
    StreamOffset,
    TopicPartition,
    find_divergences,
    from_items,
    items,
)

_log = logging.getLogger("lakelog.spark")


def report_loss(what: str, *, fail: bool) -> None:
    """Raise `DataLossError` if `fail`; otherwise log a warning."""
    if fail:
        raise DataLossError(
            f"{what}. Set the option failOnDataLoss=false to continue without the lost records"
        )
    _log.warning("records are lost: %s", what, extra=event("records_lost"))


@dataclass(frozen=True, slots=True)
class Continuation:
    """The start and the end of a query's next batch, with the same partitions.

    For a partition without new records, `end` keeps the leader epoch of the point that was read.
    """

    start: StreamOffset
    end: StreamOffset


def continue_from(
    client: TopicClient, begin: StreamOffset, target: StreamOffset, *, fail_on_data_loss: bool
) -> Continuation:
    """Return where a query that has read up to `begin` continues, and where `target` lets it end.

    New partitions begin at their earliest offset. If losses are accepted, so does a topic that was
    created again, and a log that was cut continues from the cut. A query that has read beyond an
    open transaction reads nothing until that ends. Raises `DataLossError`, `KafkaError`, and
    `TopicMissingError` for a topic that was deleted during the call.
    """
    return _Continuing(client, begin, fail_on_data_loss).to(target)


class _Continuing:
    def __init__(self, client: TopicClient, begin: StreamOffset, fail: bool) -> None:
        self._client = client
        self._begin = begin
        self._fail = fail

    def to(self, target: StreamOffset) -> Continuation:
        ends = self._existing(target)
        for key, _ in items(self._begin.offsets):
            if key not in ends:
                self._lost(f"{_name(key)} was deleted, or is no longer part of the query")
        starts, continued = self._starts(target, ends)
        for key, start in starts.items():
            # The end may be below the start: the query read uncommitted records, or the log was
            # cut.
            if start > ends[key]:
                ends[key] = self._end_before(start, key)
        epochs: dict[TopicPartition, int] = {}
        for key in ends:
            is_idle = key in continued and starts[key] == ends[key]
            # A newer epoch without new records would hide a cut below the position.
            epoch = self._begin.epoch_of(key) if is_idle else None
            epoch = target.epoch_of(key) if epoch is None else epoch
            if epoch is not None:
                epochs[key] = epoch
        ids = {topic: id_ for topic, id_ in target.topic_ids.items() if topic in from_items(ends)}
        return Continuation(
            StreamOffset(from_items(starts), ids),
            StreamOffset(from_items(ends), ids, from_items(epochs)),
        )

    def _existing(self, target: StreamOffset) -> dict[TopicPartition, int]:
        """Return the ends in `target` of the partitions that still exist."""
        metas = self._client.find(target.offsets)
        ends: dict[TopicPartition, int] = {}
        for topic, partitions in target.offsets.items():
            # Asked again: the topic may have changed since `target` was planned.
            meta = metas.get(topic)
            if meta is None:
                self._lost(f"topic {topic!r} was deleted")
            elif not target.is_of(topic, meta.topic_id):
                self._lost(f"topic {topic!r} was deleted and created again")
            else:
                ends |= {(topic, p): e for p, e in partitions.items() if p in meta.partitions}
        return ends

    def _starts(
        self, target: StreamOffset, ends: dict[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        """Return where each partition of `ends` begins, and which of them have an unchanged log."""
        recreated = {
            topic
            for topic, topic_id in target.topic_ids.items()
            if topic in self._begin.offsets and not self._begin.is_of(topic, topic_id)
        }
        for topic in sorted(recreated):
            self._lost(f"topic {topic!r} was deleted and created again")
        resumed = {
            key: offset
            for key, offset in items(self._begin.offsets)
            if key in ends and key[0] not in recreated
        }
        diverged = self._diverged(resumed)
        new = [key for key in ends if key not in resumed]
        earliest = self._client.earliest([*new, *(k for k, at in diverged.items() if at is None)])
        for key in new:
            # Records of a new partition were removed before the query could read them.
            if earliest[key] > 0 and key[0] not in recreated:
                self._lost(f"{_name(key)} is new, but its first offset is {earliest[key]}")
        cut = {key: at for key, at in diverged.items() if at is not None}
        return {**resumed, **earliest, **cut}, resumed.keys() - diverged.keys()

    def _diverged(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return where reading continues in the logs that were cut; `None` if that is unknown."""
        begin = self._begin
        divergences = find_divergences(
            self._client, StreamOffset(from_items(offsets), begin.topic_ids, begin.epochs)
        )
        if divergences:
            self._lost("; ".join(map(str, divergences)))
        return {(cut.topic, cut.partition): cut.restart for cut in divergences}

    def _end_before(self, start: int, key: TopicPartition) -> int:
        """Return where to stop in a partition whose readable end is before `start`."""
        end = self._client.log_end([key])[key]
        if start > end:
            self._lost(
                f"{_name(key)} ends at {end}, before offset {start} which the query has reached"
            )
        return min(start, end)

    def _lost(self, what: str) -> None:
        report_loss(what, fail=self._fail)


def _name(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"


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
