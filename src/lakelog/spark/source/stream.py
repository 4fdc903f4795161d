"""Streaming queries: positions, limits per batch, and changes of topics during the query.

The reader lives in one Python process for the whole query. Spark asks it for the next end offset
before each micro-batch. State that must survive the process is part of the offsets, which Spark
keeps in the checkpoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from lakelog.base.events import event
from lakelog.spark.python_processes import without_traceback
from lakelog.spark.source.batch import RangePartition, open_planner, plan, read_planned
from lakelog.spark.source.continuation import Continuation, continue_from, find_topics, resolve
from lakelog.spark.source.options import Boundary, Pace, SourceOptions, waiting_offsets
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import TopicMissingError
from lakelog.tables.topic.offsets import (
    Offsets,
    StreamOffset,
    limit_offsets,
    offsets_in,
    ranges_between,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

T = TypeVar("T")

_log = logging.getLogger("lakelog.spark")
_ATTEMPTS_MAX = 3


@dataclass(frozen=True, slots=True)
class _Latest:
    """The end of all subscribed partitions, and an error text for each missing topic."""

    point: StreamOffset
    missing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Compared:
    """The logs were compared with `begin`, for a batch that ends at `target` at the latest."""

    begin: StreamOffset
    target: StreamOffset
    continuation: Continuation


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A query that follows its topics."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._final: _Latest | None = None
        self._latest: StreamOffset | None = None
        self._logged_missing: set[str] = set()
        self._pace = Pace(options.limits)
        self._polled: _Compared | None = None
        self._next: _Compared | None = None

    @cached_property
    def _client(self) -> TopicClient:
        return open_planner(self._options)

    @without_traceback()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return resolve(
            self._client,
            self._options.starting,
            find_topics(self._client, self._options.subscription).complete(),
            latest_if_no_timestamp=self._options.latest_if_no_timestamp,
        ).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a limit whose number is not used if the query has any limits.

        Spark has no combined limits, so `latestOffset` applies the limits of the options, unless
        Spark asks for all available records, as with `Trigger.Once`.
        """
        limits = self._options.limits
        return ReadMaxRows(limits.offsets_max or 1) if limits.are_set else ReadAllAvailable()

    @without_traceback()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._final = self._retrying(self._read_latest)

    @without_traceback()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; `start` itself if there is nothing to read.

        Raises `DataLossError`, `TopicMissingError`, and `KafkaError` if the cluster does not
        answer.
        """
        begin = StreamOffset.from_json(start)
        return self._retrying(lambda: self._end_of_next(begin, limit)).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the end of the log as `latestOffset` found it, and the entry for listeners."""
        latest = None if self._latest is None else self._latest.to_json()
        return self._options.identity.add_to(latest)

    @without_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        begin, target = StreamOffset.from_json(start), StreamOffset.from_json(end)
        continuation = self._retrying(lambda: self._continue_to_end(begin, target))
        return plan(self._client, continuation.start, continuation.end, self._options)

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        return read_planned(self._options, self._schema, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the checkpoint holds the progress."""

    def stop(self) -> None:
        """Close the connections."""
        if "_client" in self.__dict__:
            self._client.close()

    def _end_of_next(self, begin: StreamOffset, limit: ReadLimit) -> StreamOffset:
        latest = self._final or self._read_latest()
        self._latest = latest.point
        self._check_missing(latest.missing, begin)
        is_limited = not isinstance(limit, ReadAllAvailable)
        if is_limited and self._final is None:
            waiting = waiting_offsets(begin.offsets, latest.point.offsets)
            if self._pace.delays(waiting, time.monotonic()):
                return begin
        continuation = self._continue_to_latest(begin, latest.point)
        end = continuation.end
        if is_limited:
            end = replace(end, offsets=self._limited(continuation.start.offsets, end.offsets))
        self._next = _Compared(begin, end, Continuation(continuation.start, end))
        return end

    def _continue_to_latest(self, begin: StreamOffset, latest: StreamOffset) -> Continuation:
        """Return where the query continues; compare only if the logs changed since the last poll.

        A log that was cut and grew again has a later leader epoch at its end.
        """
        compared = self._polled
        if compared is not None and (compared.begin, compared.target) == (begin, latest):
            return compared.continuation
        continuation = self._continue(begin, latest)
        self._polled = _Compared(begin, latest, continuation)
        return continuation

    def _continue_to_end(self, begin: StreamOffset, target: StreamOffset) -> Continuation:
        """Return the batch that `latestOffset` has just compared; compare any other batch.

        If a log is cut after that, new records at the offsets of the batch have later leader
        epochs, which the tasks detect.
        """
        compared, self._next = self._next, None
        if compared is not None and (compared.begin, compared.target) == (begin, target):
            return compared.continuation
        return self._continue(begin, target)

    def _limited(self, start: Offsets, end: Offsets) -> Offsets:
        limits = self._options.limits
        if limits.offsets_max is not None:
            end = limit_offsets(start, end, limits.offsets_max)
        ranges = ranges_between(start, end)
        if limits.bytes_max is not None and ranges:
            end = limit_offsets(start, end, offsets_in(limits.bytes_max, ranges, self._client))
        return end

    def _continue(self, begin: StreamOffset, target: StreamOffset) -> Continuation:
        return continue_from(
            self._client, begin, target, fail_on_data_loss=self._options.fail_on_data_loss
        )

    def _read_latest(self) -> _Latest:
        subscribed = find_topics(self._client, self._options.subscription)
        return _Latest(resolve(self._client, Boundary.LATEST, subscribed), subscribed.missing)

    def _check_missing(self, missing: Mapping[str, str], begin: StreamOffset) -> None:
        """Check topics that the query names and that do not exist.

        A missing topic that the query has read before is a loss, which `continue_from` reports. Any
        other name may be misspelt: raises `TopicMissingError`, or if losses are accepted logs it
        once, because the topic may have been deleted long ago.
        """
        for topic, text in missing.items():
            if self._options.fail_on_data_loss and topic not in begin.offsets:
                raise TopicMissingError(text)
            if text not in self._logged_missing:
                self._logged_missing.add(text)
                _log.warning(
                    "%s; its records are not read", text, extra=event("subscribed_topic_missing")
                )

    def _retrying(self, work: Callable[[], T]) -> T:
        """Return `work()`; retry it if a topic is deleted meanwhile and losses are accepted."""
        for _ in range(_ATTEMPTS_MAX - 1):
            try:
                return work()
            except TopicMissingError:
                if self._options.fail_on_data_loss:
                    raise
        return work()
