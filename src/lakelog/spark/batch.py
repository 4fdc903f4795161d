"""Batch reads: a snapshot of offsets is planned once, tasks read their ranges of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from lakelog.base.events import event
from lakelog.spark.broker import Broker
from lakelog.spark.columns import ArrowRows, arrow_schema
from lakelog.spark.errors import DataLossError, OptionError
from lakelog.spark.options import SourceOptions
from lakelog.spark.planning import OffsetRange, ranges_between, split_ranges
from lakelog.spark.positions import find_topics, resolve

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger("lakelog.spark")


class RangePartition(InputPartition):  # type: ignore[misc]
    """What one task reads; `None` stands for nothing, as when a topic is empty."""

    def __init__(self, value: OffsetRange | None) -> None:
        super().__init__(value)
        self.value: OffsetRange | None = value


class BatchReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[RangePartition]:
        options = self._options
        with open_broker(options) as broker:
            metas, partitions = find_topics(broker, options.subscription)
            start = resolve(
                broker,
                options.starting,
                partitions,
                latest_if_no_timestamp=options.latest_if_no_timestamp,
            )
            end = resolve(broker, options.ending, partitions)
        ranges = split_ranges(ranges_between(start, end), options.partitions_min)
        return [
            RangePartition(replace(each, topic_id=metas[each.topic].topic_id)) for each in ranges
        ] or [RangePartition(None)]

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, self._schema, partition.value)


def open_broker(options: SourceOptions) -> Broker:
    """What a query reads from."""
    return Broker(
        options.bootstrap, client_id=options.client_id, read_committed=options.read_committed
    )


def read_range(
    options: SourceOptions, schema: StructType, wanted: OffsetRange | None
) -> Iterator[pa.RecordBatch]:
    """Every record of the range. Raises `DataLoss` when some are gone and that is not allowed."""
    if wanted is None:
        return
    with open_broker(options) as broker:
        remaining = _still_there(broker, wanted, fail=options.fail_on_data_loss)
        if remaining is not None:
            chunks = broker.read(
                wanted.topic,
                wanted.partition,
                remaining.start,
                remaining.end,
                topic_id=wanted.topic_id,
            )
            yield from ArrowRows(arrow_schema(schema)).convert(
                wanted.topic, wanted.partition, chunks
            )


def _still_there(broker: Broker, wanted: OffsetRange, *, fail: bool) -> OffsetRange | None:
    """The part of a range that the log still holds; the rest is lost, which may `fail`."""
    meta = broker.describe([wanted.topic])[wanted.topic]
    if wanted.topic_id and meta.topic_id != wanted.topic_id:
        lost = f"{wanted}: the topic was deleted and created again"
        if fail:
            raise DataLossError(lost)
        _log.warning("records are lost: %s", lost, extra=event("records_lost"))
        return None
    partition = (wanted.topic, wanted.partition)
    first = broker.earliest([partition])[partition]
    readable_end = broker.latest([partition])[partition]
    end = broker.log_end([partition])[partition]
    if readable_end < wanted.end <= end:
        raise OptionError(
            f"{wanted}: the transaction at offset {readable_end} is still open. Read again when it "
            "has ended, or set the option kafka.isolation.level=read_uncommitted"
        )
    if first > wanted.start or end < wanted.end:
        lost = f"{wanted}: the log holds only [{first}, {end})"
        if fail:
            raise DataLossError(
                f"{lost}. Set the option failOnDataLoss=false to go on without the missing records"
            )
        _log.warning("records are lost: %s", lost, extra=event("records_lost"))
    remaining = replace(wanted, start=max(first, wanted.start), end=min(end, wanted.end))
    return remaining if remaining.size > 0 else None
