"""A batch of records, and the queue of batches of each partition."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from lakelog.base.errors import ErrorCode
from lakelog.client.producer.results import BatchResult
from lakelog.records.builder import BatchBuilder
from lakelog.runtime.api import Buffer

NO_SEQUENCE = -1
SEQUENCE_END = 1 << 31
EPOCH_MAX = 32767


class Records(Protocol):
    """The records of a closed batch; a `BatchBuilder`, or rows of a table that are encoded."""

    @property
    def count(self) -> int:
        """The number of records."""
        ...

    @property
    def size_estimate(self) -> int:
        """The size of the batch in bytes, or an upper bound."""
        ...

    def build(
        self,
        producer_id: int = ...,
        producer_epoch: int = ...,
        base_sequence: int = ...,
        *,
        is_transactional: bool = ...,
    ) -> Buffer:
        """Return the batch with these numbers in its header."""
        ...


class ProducerBatch:
    """Records that are sent together and get one result.

    `number` orders the batches of a partition. The batch is encoded once per sequence and kept for
    retries. Times are in seconds on a monotonic clock.
    """

    __slots__ = (
        "attempts",
        "created_s",
        "encoded",
        "is_maybe_written",
        "is_transactional",
        "last_code",
        "last_error",
        "number",
        "producer_epoch",
        "producer_id",
        "queue",
        "records",
        "result",
        "sequence",
    )

    def __init__(
        self,
        queue: PartitionQueue,
        records: Records,
        created_s: float,
        *,
        is_transactional: bool = False,
    ) -> None:
        self.queue = queue
        self.is_transactional = is_transactional
        self.records = records
        self.created_s = created_s
        self.number = queue.next_number()
        self.result = BatchResult(queue.topic, queue.partition)
        self.attempts = 0
        self.sequence = NO_SEQUENCE
        self.producer_id = -1
        self.producer_epoch = -1
        self.encoded: Buffer | None = None
        self.is_maybe_written = False
        self.last_code = ErrorCode.REQUEST_TIMED_OUT
        """The code with which the batch fails if it expires now."""
        self.last_error = ""

    @property
    def size(self) -> int:
        """The size in bytes; of an open batch, before compression."""
        return self.records.size_estimate

    def encode(self) -> Buffer:
        """Return the encoded batch. Encoding is the slow part of a producer and happens once."""
        # A retry sends the same bytes: the broker detects duplicates by sequence (KIP-98).
        if self.encoded is None:
            self.encoded = self.records.build(
                self.producer_id,
                self.producer_epoch,
                self.sequence,
                is_transactional=self.is_transactional,
            )
        return self.encoded


class OpenBatch(ProducerBatch):
    """A batch that takes more records until it is closed."""

    __slots__ = ("builder",)

    def __init__(
        self,
        queue: PartitionQueue,
        builder: BatchBuilder,
        created_s: float,
        *,
        is_transactional: bool = False,
    ) -> None:
        super().__init__(queue, builder, created_s, is_transactional=is_transactional)
        self.builder = builder


class PartitionQueue:
    """The batches of one partition in their order: in flight, waiting, and the open one.

    Sequences and epoch belong to the partition: a broker keeps them per partition, so a higher
    epoch here does not affect the batches of other partitions.
    """

    __slots__ = (
        "_numbers",
        "in_flight",
        "next_sequence",
        "not_before_s",
        "open",
        "partition",
        "producer_epoch",
        "producer_id",
        "renumber_wanted",
        "topic",
        "waiting",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.open: OpenBatch | None = None
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.not_before_s = 0.0
        self.producer_id = -1
        self.producer_epoch = -1
        self.next_sequence = 0
        self.renumber_wanted = False
        self._numbers = 0

    @property
    def is_idle(self) -> bool:
        """Whether the partition has no batch."""
        return self.open is None and not self.waiting and not self.in_flight

    @property
    def oldest_unsent(self) -> ProducerBatch | None:
        """The next batch to send."""
        return self.waiting[0] if self.waiting else self.open

    @property
    def next_size(self) -> int:
        """The size of the next batch to send in bytes; there must be one."""
        batch = self.oldest_unsent
        assert batch is not None
        return batch.size

    def next_number(self) -> int:
        """Return a number above that of all earlier batches."""
        self._numbers += 1
        return self._numbers

    def close_open(self) -> None:
        """Close the open batch for further records; it is sent after the waiting ones."""
        if self.open is not None:
            self.waiting.append(self.open)
            self.open = None

    def is_first(self, batch: ProducerBatch) -> bool:
        """Return whether the partition has no earlier batch in flight or waiting."""
        earlier = [other for other in self.in_flight if other.number < batch.number]
        return not earlier and not (self.waiting and self.waiting[0].number < batch.number)

    def put_back(self, batch: ProducerBatch) -> None:
        """Return a batch in flight to its old place among the waiting ones."""
        self.in_flight.remove(batch)
        index = 0
        while index < len(self.waiting) and self.waiting[index].number < batch.number:
            index += 1
        self.waiting.insert(index, batch)

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Assign a batch the next sequence of this producer in the partition (KIP-98).

        A batch that has a sequence keeps it, so that the broker detects the repetition.
        """
        if batch.sequence == NO_SEQUENCE:
            batch.sequence = self.next_sequence
            batch.producer_id = self.producer_id
            batch.producer_epoch = self.producer_epoch
            self.next_sequence = (self.next_sequence + batch.records.count) % SEQUENCE_END

    def postpone(self, until_s: float, reason: str) -> None:
        """Send no batch before `until_s`. Batches that expire until then report the reason.

        until_s: seconds, monotonic clock.
        """
        self.not_before_s = until_s
        for batch in (*self.waiting, self.open):
            if batch is not None:
                batch.last_error = batch.last_error or reason

    def begin_transaction(self, producer_id: int, producer_epoch: int) -> None:
        """Restart the sequences with a new epoch; the queue must be empty."""
        assert self.is_idle
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.next_sequence = 0
        self.renumber_wanted = False

    def renumber(self) -> None:
        """Restart the sequences of all waiting batches at the next epoch; none may be in flight.

        Beyond `EPOCH_MAX` the partition needs a new producer id before it sends again. Source:
        KIP-360.
        """
        assert not self.in_flight
        self.renumber_wanted = False
        self.next_sequence = 0
        self.producer_epoch += 1
        for batch in self.waiting:
            batch.sequence = NO_SEQUENCE
            # The header contains sequence and epoch.
            batch.encoded = None
