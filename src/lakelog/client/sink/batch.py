"""The values that tasks and driver of a sink exchange. All are tuples, so they can be pickled."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.protocol.commit_sets import NO_BATCH


class Run(NamedTuple):
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


class Written(NamedTuple):
    """The number of records that a task wrote to one partition of a topic."""

    topic: str
    partition: int
    records: int


class Receipt(NamedTuple):
    """The open transaction of a task. All its records are acknowledged, but not committed."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    written: tuple[Written, ...]

    @property
    def records(self) -> int:
        """The number of records in all partitions."""
        return sum(batch.records for batch in self.written)
