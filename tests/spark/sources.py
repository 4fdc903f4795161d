"""The source's readers driven as Spark drives them, without a JVM: for what happens in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from lakelog.spark.source.batch import RangePartition
from lakelog.spark.source.readers import batch_reader, schema_of, stream_reader
from lakelog.spark.source.stream import StreamReader


class StreamQuery:
    """A streaming query with a checkpoint; each `run` is a process of its own that may fail."""

    def __init__(self, bootstrap: str, topic: str, **options: str) -> None:
        self.options = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **options,
        }
        self.offset: dict[str, Any] | None = None

    def run(self) -> list[str]:
        """The values of all batches up to the present end."""
        found: list[str] = []
        reader = self.open()
        try:
            if self.offset is None:
                self.offset = reader.initialOffset()
            while (end := self.plan(reader)) != self.offset:
                for task in reader.partitions(self.offset, end):
                    found += values(reader.read(task))
                self.offset = end
        finally:
            reader.stop()
        return found

    def open(self) -> StreamReader:
        return stream_reader(self.options, schema_of(self.options))

    def plan(self, reader: StreamReader) -> dict[str, Any]:
        """The end of the next batch, as it would come back from a checkpoint."""
        assert self.offset is not None
        end: dict[str, Any] = json.loads(
            json.dumps(reader.latestOffset(self.offset, reader.getDefaultReadLimit()))
        )
        return end


class BatchQuery:
    """Tasks that were planned, and can be run later."""

    def __init__(self, bootstrap: str, topic: str, **options: str) -> None:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
        self.reader = batch_reader(given, schema_of(given))
        self.tasks: list[RangePartition] = self.reader.partitions()

    def run(self) -> list[str]:
        return [value for task in self.tasks for value in values(self.reader.read(task))]


def values(batches: Iterator[Any]) -> list[str]:
    return [value.decode() for batch in batches for value in batch.column("value").to_pylist()]
