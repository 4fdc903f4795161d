"""The control record of a sink: which batch comes next, and of which query. No I/O.

The brokers keep one control record per sink id. It is committed in the same transaction as the
records of a batch, so that a batch is visible exactly if the next batch is above it:

    visible(b)  <=>  next_batch > b

Spark writes its own commit log after that. A crash between the two repeats the batch `next_batch -
1`, which is then skipped. No other difference between checkpoint and sink has a harmless cause.

A checkpoint that lost its last batch, for example because a backup was restored, makes that number
again too, but of all records that exist by then. The record therefore has the content of the last
batch (`Content`), and a batch with other rows is not skipped. Spark may divide the rows of a
repeated batch among other tasks, in another order. The digest is therefore a sum over the rows: of
the checksum (CRC-32C) of topic, key and value, of the checksums of the headers, and of the
timestamps. The partition of a row does not count, because rows without a key are dealt to the
partitions in the order of the tasks.

Batch ids belong to one checkpoint, whose id is the query id. A new checkpoint counts from 0 again,
so a batch is only skipped if the query id is equal. `sinkGeneration` lets a new query continue: it
starts a new count, and ends that of all lower generations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING

from lakelog.records import crc
from lakelog.spark.sink.options import (
    BatchOrderError,
    OldGenerationError,
    OtherQueryError,
    Repeated,
    SinkError,
)

if TYPE_CHECKING:
    import pyarrow as pa


_FORMAT = Struct(">bqq")
_SEPARATOR = b"\0"
_DIGEST_MASK = (1 << 63) - 1
"""A digest fits into a column of 64-bit signed integers."""


@dataclass(frozen=True, slots=True)
class Content:
    """The rows of a batch. digest: `None` in the control record of an earlier lakelog."""

    rows: int = 0
    digest: int | None = 0

    def __add__(self, other: Content) -> Content:
        """Return the content of the rows of both."""
        assert self.digest is not None and other.digest is not None, "only records lack digests"
        return Content(self.rows + other.rows, (self.digest + other.digest) & _DIGEST_MASK)

    def to_bytes(self) -> bytes:
        """Return the content as the coordinator of a sink keeps it."""
        assert self.digest is not None, "only records lack digests"
        return _FORMAT.pack(_VERSION, self.rows, self.digest)

    @classmethod
    def from_bytes(cls, data: bytes) -> Content | None:
        """Return the content, `None` if an earlier or a later lakelog wrote the record."""
        if len(data) != _FORMAT.size or data[0] != _VERSION:
            return None
        _, rows, digest = _FORMAT.unpack(data)
        return cls(rows, digest)


class Tally:
    """Counts the rows that pass through one task. topic: the option, which the column yields to."""

    def __init__(self, topic: str | None) -> None:
        self._topic = topic
        self.content = Content()

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, and add them to `content`."""
        for batch in batches:
            self.content += content_of(batch, self._topic)
            yield batch


def content_of(batch: pa.RecordBatch, topic: str | None) -> Content:
    """Return the content of the rows. topic: the option, which takes precedence over the column."""
    names = batch.schema.names
    counted = ("key", "value") if topic is not None else ("topic", "key", "value")
    rows = _joined([_bytes(batch.column(name)) for name in counted if name in names])
    # As if the option were a column.
    start = 0 if topic is None else crc.crc32c(topic.encode() + _SEPARATOR)
    digest = sum(map(crc.crc32c, rows, repeat(start)))
    if "headers" in names:
        keys, values = batch.column("headers").flatten().flatten()
        digest += sum(map(crc.crc32c, _joined([_bytes(keys), _bytes(values)]), repeat(0)))
    if "timestamp" in names:
        digest += _sum_of_times(batch.column("timestamp"))
    return Content(batch.num_rows, digest & _DIGEST_MASK)


def _bytes(column: pa.Array) -> pa.Array:
    """Return the column as bytes; null is empty."""
    import pyarrow as pa

    return column.cast(pa.large_binary()).fill_null(b"")


def _joined(columns: list[pa.Array]) -> list[bytes]:
    """Return the items of each row as one value, so that Python handles a row once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    separator = pa.scalar(_SEPARATOR, pa.large_binary())
    return list(pc.binary_join_element_wise(*columns, separator).to_pylist())


def _sum_of_times(column: pa.Array) -> int:
    """Return the sum of the timestamps in milliseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return int(pc.sum(column.cast(pa.int64())).as_py() or 0)


_VERSION = 1
_TEXT_BYTES_MAX = 4096
"""Apache Kafka's `offset.metadata.max.bytes`."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One run of a micro-batch.

    query_id: of the checkpoint. run_id: of the present start of the query.
    """

    query_id: str
    run_id: str
    number: int


@dataclass(frozen=True, slots=True)
class Control:
    """The control record. content: of the last batch, `None` if it is unknown."""

    query_id: str
    run_id: str
    generation: int
    next_batch: int
    content: Content | None

    def to_text(self) -> str:
        """Return the record as the metadata of a committed offset (at most 4096 bytes)."""
        assert self.content is not None, "the writer of a record has counted its rows"
        text = json.dumps(
            {
                "version": _VERSION,
                "query_id": self.query_id,
                "run_id": self.run_id,
                "generation": self.generation,
                "rows": self.content.rows,
                "digest": self.content.digest,
            }
        )
        assert len(text.encode()) <= _TEXT_BYTES_MAX
        return text

    @classmethod
    def from_text(cls, next_batch: int, text: str) -> Control:
        """Return the record of a committed offset. Raises `SinkError` if the text is foreign."""
        try:
            fields = json.loads(text)
            if fields["version"] != _VERSION:
                raise SinkError(
                    f"the sink's control record has version {fields['version']}, and this lakelog "
                    f"reads version {_VERSION}: upgrade lakelog, or choose another 'sinkId'"
                )
            digest = fields.get("digest")  # records of earlier versions have none
            return cls(
                query_id=str(fields["query_id"]),
                run_id=str(fields["run_id"]),
                generation=int(fields["generation"]),
                next_batch=next_batch,
                content=Content(int(fields["rows"]), None if digest is None else int(digest)),
            )
        except (ValueError, KeyError, TypeError):
            raise SinkError(
                f"the sink's control record is not readable ({text[:80]!r}): another program "
                "commits offsets under this name; choose another 'sinkId'"
            ) from None


class Step(Enum):
    """What to do with a batch."""

    WRITE = auto()
    SKIP = auto()
    """It is committed already."""


def next_step(sink_id: str, stored: Control | None, batch: Batch, generation: int) -> Step:
    """Return whether the batch is written or is committed already.

    stored: the control record, `None` before the first batch of a sink. generation: the option
    `sinkGeneration` of this query. Raises `OtherQueryError`, `OldGenerationError`,
    `BatchOrderError`.
    """
    if stored is None or generation > stored.generation:
        return Step.WRITE
    if generation < stored.generation:
        raise OldGenerationError(
            f"sink {sink_id!r} is at generation {stored.generation}, this query at {generation}: a "
            "full refresh has replaced this query. Stop it, or raise its option 'sinkGeneration'"
        )
    if batch.query_id != stored.query_id:
        raise OtherQueryError(
            f"sink {sink_id!r} belongs to query {stored.query_id}, not to {batch.query_id}: the "
            "checkpoint is new or of another query. Choose another 'sinkId' for another query; "
            f"for a new start of this one set 'sinkGeneration' to {stored.generation + 1}"
        )
    if batch.number == stored.next_batch - 1:
        return Step.SKIP
    if batch.number != stored.next_batch:
        raise BatchOrderError(_out_of_order(sink_id, stored, batch))
    return Step.WRITE


def check_repeated(
    sink_id: str,
    batch: int,
    stored: Content | None,
    given: Content,
    repeated: Repeated,
    generation: int,
) -> None:
    """Raise `BatchOrderError` if a batch that is to be skipped has other rows than the sink.

    stored: of the committed batch with this number, `None` if its record has none. given: of the
    repeated batch. generation: of this query.
    """
    if stored is None or repeated is Repeated.ANY:
        return
    is_same = stored.rows == given.rows
    if repeated is Repeated.SAME_ROWS and None not in (stored.digest, given.digest):
        is_same = stored == given
    if is_same:
        return
    other = "other " * (stored.rows == given.rows)
    raise BatchOrderError(
        f"batch {batch} of sink {sink_id!r} is committed with {_rows(stored)}, and this checkpoint "
        f"makes it of {other}{_rows(given)}: the checkpoint is one batch behind the sink, and rows "
        "would be lost. Restore the checkpoint that belongs to the sink; or, to continue with this "
        f"one, set 'sinkGeneration' to {generation + 1}, which writes this batch as well. If the "
        "query computes other rows each time, set 'repeatedBatch' to same-count or any"
    )


def _rows(content: Content) -> str:
    return f"{content.rows} row{'s'[: content.rows != 1]}"


def unnamed_sink(query_id: str) -> str:
    """Return the warning for the first batch of a query without `sinkId`."""
    return (
        f"query {query_id} begins a new sink, because its checkpoint is new and it has no option "
        "'sinkId': if an earlier checkpoint of this query was deleted, the rows from its starting "
        "offsets are written again. With 'sinkId' such a start is refused"
    )


def _out_of_order(sink_id: str, stored: Control, batch: Batch) -> str:
    where = "behind" if batch.number < stored.next_batch else "ahead of"
    effect = (
        "batches that the sink has would be written again, perhaps with other rows"
        if batch.number < stored.next_batch
        else "batches between them were never written to this sink"
    )
    return (
        f"batch {batch.number} is {where} sink {sink_id!r}, whose next batch is "
        f"{stored.next_batch}: {effect}. Restore the checkpoint that belongs to the sink; or, to "
        f"continue with this one, set 'sinkGeneration' to {stored.generation + 1}"
    )
