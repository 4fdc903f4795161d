"""The streaming source: positions, admission control, and what changes under a running query.

The reader object lives in one Python process for the whole query and is asked for the next end
offset before each micro-batch. The state that must outlive it is in the offsets themselves, which
Spark keeps in the checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from lakelog.base.events import event
from lakelog.spark.batch import RangePartition, open_broker, read_range
from lakelog.spark.broker import Broker
from lakelog.spark.errors import DataLossError
from lakelog.spark.offsets import Offsets, StreamOffset, TopicPartition, from_items, items
from lakelog.spark.options import SourceOptions
from lakelog.spark.planning import limit_offsets, ranges_between, split_ranges
from lakelog.spark.positions import find_topics, resolve

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger("lakelog.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._final: StreamOffset | None = None
        self._latest: StreamOffset | None = None

    @cached_property
    def _broker(self) -> Broker:
        return open_broker(self._options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        metas, partitions = find_topics(self._broker, self._options.subscription)
        offsets = resolve(
            self._broker,
            self._options.starting,
            partitions,
            latest_if_no_timestamp=self._options.latest_if_no_timestamp,
        )
        return StreamOffset(offsets, {m.name: m.topic_id for m in metas.values()}).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._final = self._read_latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` itself when there is nothing to read."""
        begin = StreamOffset.from_json(start)
        target = self._latest = self._final or self._read_latest()
        begin, end = self._reconcile(begin, target)
        if isinstance(limit, ReadMaxRows):
            end = limit_offsets(begin.offsets, end, limit.max_rows)
        return StreamOffset(end, target.topic_ids).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        begin, target = StreamOffset.from_json(start), StreamOffset.from_json(end)
        begin, _ = self._reconcile(begin, target)
        ranges = ranges_between(begin.offsets, target.offsets)
        return [
            RangePartition(replace(each, topic_id=target.topic_ids.get(each.topic, "")))
            for each in split_ranges(ranges, self._options.partitions_min)
        ] or [RangePartition(None)]

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, self._schema, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the checkpoint is the progress."""

    def stop(self) -> None:
        if "_broker" in self.__dict__:
            self._broker.close()

    def _read_latest(self) -> StreamOffset:
        metas, partitions = find_topics(self._broker, self._options.subscription)
        ids = {meta.name: meta.topic_id for meta in metas.values()}
        return StreamOffset(from_items(self._broker.latest(partitions)), ids)

    def _reconcile(self, begin: StreamOffset, target: StreamOffset) -> tuple[StreamOffset, Offsets]:
        """Where to begin, given that topics may have come, gone or been created anew.

        New partitions begin at their earliest offset, as does a topic created anew once its loss
        is accepted. A query that went beyond an open transaction when it still read uncommitted
        records waits where it is. Returns the adjusted beginning and the end to read to.
        """
        start: Offsets = {}
        ends = dict(items(target.offsets))
        unknown = []
        for (topic, partition), end in items(target.offsets):
            known = begin.offsets.get(topic, {}).get(partition)
            if known is not None and not _same_topic(topic, begin, target):
                self._lost(f"topic {topic!r} was deleted and created again")
                known = None
            if known is None:
                unknown.append((topic, partition))
                continue
            if known > end:
                ends[topic, partition] = self._end_before(known, (topic, partition))
            start.setdefault(topic, {})[partition] = known
        for (topic, partition), _ in items(begin.offsets):
            if partition not in target.offsets.get(topic, {}):
                self._lost(f"{topic}-{partition} is gone, or no longer among what is read")
        for (topic, partition), offset in self._broker.earliest(unknown).items():
            if offset > 0:
                self._lost(f"{topic}-{partition} is new, but its first offset is {offset}")
            start.setdefault(topic, {})[partition] = offset
        return StreamOffset(start, target.topic_ids), from_items(ends)

    def _end_before(self, known: int, partition: TopicPartition) -> int:
        """Where to read to in a partition whose readable end is before `known`."""
        end = self._broker.log_end([partition])[partition]
        if known > end:
            where = f"{partition[0]}-{partition[1]}"
            self._lost(f"{where} ends at {end}, before {known} where we were")
        return min(known, end)

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}: records may have been lost. Set the option failOnDataLoss=false to go on"
            )
        _log.warning("records may have been lost: %s", what, extra=event("records_lost"))


def _same_topic(topic: str, begin: StreamOffset, target: StreamOffset) -> bool:
    """Offsets without ids come from the official connector's checkpoints and match any topic."""
    known = begin.topic_ids.get(topic)
    return known is None or known == target.topic_ids.get(topic, known)
