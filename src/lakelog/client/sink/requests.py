"""Requests to the coordinator of a sink (docs/formats/commit-sets.md), and the values in them.

Tasks and driver of a sink exchange the values. All are tuples, so they can be pickled.

They are safe to repeat. A broker without commit sets would ignore the fields of lakelog's own, so
they are for connections whose broker lists `FEATURE` only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lakelog.protocol.commit_sets import (
    NO_BATCH,
    CommitSet,
    SinkParent,
    SinkRun,
    Winner,
    WrittenPartition,
    WrittenTopic,
)
from lakelog.protocol.transactions import EndTxnRequest, InitProducerIdRequest


class QueryRun(NamedTuple):
    """A run of a query that holds a sink id, as `Sink.begin` returned it.

    next_batch: the batch that was next then; -1 if the sink had committed none. The first batch
    that is committed may then have any number.
    """

    sink_id: str
    query_id: str
    run_id: str
    producer_id: int
    producer_epoch: int
    next_batch: int = NO_BATCH

    def has_committed(self, batch: int) -> bool:
        """Return whether the batch was committed when the run began or continued."""
        return batch < self.next_batch

    def child_id(self, batch: int, partition: int, attempt: int) -> str:
        """Return the transactional id of one attempt to write one partition of a batch.

        Raises `ValueError` for a negative number.
        """
        if min(batch, partition, attempt) < 0:
            raise ValueError(f"batch {batch}, partition {partition}, attempt {attempt}: negative")
        return f"{self.sink_id}/{batch}/{partition}/{attempt}"


class RecordCount(NamedTuple):
    """The number of records that a task wrote to one partition of a topic."""

    topic: str
    partition: int
    records: int


class Receipt(NamedTuple):
    """The open transaction of a task. All its records are acknowledged, but not committed."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    written: tuple[RecordCount, ...]

    @property
    def records(self) -> int:
        """The number of records in all partitions."""
        return sum(batch.records for batch in self.written)


_TIMEOUT_MS = 60_000
"""Transaction timeout of the sink's own id, which has no transaction."""


def begin_run(
    sink_id: str, query_id: str, run_id: str, batch: int, *, expires: bool = False
) -> InitProducerIdRequest:
    """Return the request that begins a run, or continues it.

    batch: the batch that the run is about to write.
    expires: whether the coordinator may forget the sink like an unused transactional id.
    """
    return InitProducerIdRequest(
        transactional_id=sink_id,
        transaction_timeout_ms=_TIMEOUT_MS,
        run=SinkRun(query_id=query_id, run_id=run_id, expires=expires, batch=batch),
    )


def open_child(run: QueryRun, child_id: str, timeout_ms: int) -> InitProducerIdRequest:
    """Return the request that begins the transaction of a task. timeout_ms: of the transaction."""
    return InitProducerIdRequest(
        transactional_id=child_id,
        transaction_timeout_ms=timeout_ms,
        parent=SinkParent(producer_id=run.producer_id, producer_epoch=run.producer_epoch),
    )


def end_batch(
    run: QueryRun, batch: int, winners: Iterable[Winner], *, commit: bool, content: bytes = b""
) -> EndTxnRequest:
    """Return the request that ends a batch: it commits the winners, and aborts all other tasks.

    content: an identity of the rows of a committed batch, for the control record.
    """
    return EndTxnRequest(
        transactional_id=run.sink_id,
        producer_id=run.producer_id,
        producer_epoch=run.producer_epoch,
        committed=commit,
        commit_set=CommitSet(
            query_id=run.query_id,
            run_id=run.run_id,
            batch=batch,
            winners=list(winners),
            content=content,
        ),
    )


def winner(receipt: Receipt) -> Winner:
    """Return the open transaction of a task as `end_batch` names it."""
    topics: dict[str, WrittenTopic] = {}
    for topic, partition, records in sorted(receipt.written):
        row = topics.setdefault(topic, WrittenTopic(name=topic))
        row.partitions.append(WrittenPartition(index=partition, records=records))
    return Winner(
        transactional_id=receipt.transactional_id,
        producer_id=receipt.producer_id,
        producer_epoch=receipt.producer_epoch,
        topics=list(topics.values()),
    )


def remove_sink(sink_id: str) -> EndTxnRequest:
    """Return the request that aborts all open tasks of a sink and forgets it."""
    return EndTxnRequest(
        transactional_id=sink_id, producer_id=-1, producer_epoch=-1, removes_sink=True
    )
