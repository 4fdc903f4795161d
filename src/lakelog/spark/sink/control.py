"""The control record of a sink: which batch comes next, and of which query. No I/O.

The brokers keep one control record per sink id. It is committed in the same transaction as the
records of a batch, so that a batch is visible exactly if the next batch is above it:

    visible(b)  <=>  next_batch > b

Spark writes its own commit log after that. A crash between the two repeats the batch `next_batch -
1`, which is then skipped. No other difference between checkpoint and sink has a harmless cause.

A checkpoint that lost its last batch, for example because a backup was restored, makes that number
again too, but of all records that exist by then. The record therefore has the content of the last
batch (`content.py`), and a batch with other rows is not skipped.

Batch ids belong to one checkpoint, whose id is the query id. A new checkpoint counts from 0 again,
so a batch is only skipped if the query id is equal. `sinkGeneration` lets a new query continue: it
starts a new count, and ends that of all lower generations.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, auto

from lakelog.spark.sink.content import Content
from lakelog.spark.sink.errors import (
    BatchOrderError,
    OldGenerationError,
    OtherQueryError,
    SinkError,
)
from lakelog.spark.sink.options import Repeated

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
