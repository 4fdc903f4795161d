"""A batch on its way to a partition, and the line of batches before each partition."""

from __future__ import annotations

from collections import deque

from lakelog.client.producer.results import BatchResult
from lakelog.records.builder import BatchBuilder

NO_SEQUENCE = -1
SEQUENCE_END = 1 << 31
EPOCH_MAX = 32767


class ProducerBatch:
    """Records that are sent together and share one fate.

    `number` orders the batches of a partition. The bytes are made once per sequence and kept for
    retries. Times are seconds on a monotonic clock.
    """

    __slots__ = (
        "attempts",
        "builder",
        "created_s",
        "encoded",
        "is_maybe_written",
        "is_transactional",
        "last_error",
        "number",
        "producer_epoch",
        "producer_id",
        "queue",
        "result",
        "sequence",
    )

    def __init__(
        self,
        queue: PartitionQueue,
        builder: BatchBuilder,
        created_s: float,
        *,
        is_transactional: bool = False,
    ) -> None:
        self.queue = queue
        self.is_transactional = is_transactional
        self.builder = builder
        self.created_s = created_s
        self.number = queue.next_number()
        self.result = BatchResult(queue.topic, queue.partition)
        self.attempts = 0
        self.sequence = NO_SEQUENCE
        self.producer_id = -1
        self.producer_epoch = -1
        self.encoded: bytearray | None = None
        self.is_maybe_written = False
        self.last_error = ""

    @property
    def size(self) -> int:
        """Bytes before compression."""
        return self.builder.size_estimate

    def encode(self) -> bytearray:
        """The bytes to send; the slow part of a producer, done once."""
        if self.encoded is None:
            self.encoded = self.builder.build(
                self.producer_id,
                self.producer_epoch,
                self.sequence,
                is_transactional=self.is_transactional,
            )
        return self.encoded


class PartitionQueue:
    """The batches of one partition in their order: in flight, waiting, and the open one.

    Sequences and epoch are the partition's own: a broker keeps them per partition, so an epoch
    that rises here leaves the other partitions' batches as they are.
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
        self.open: ProducerBatch | None = None
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
        return self.open is None and not self.waiting and not self.in_flight

    @property
    def oldest_unsent(self) -> ProducerBatch | None:
        """The batch that would be sent next."""
        return self.waiting[0] if self.waiting else self.open

    @property
    def next_size(self) -> int:
        """Bytes of the batch that would be sent next; there must be one."""
        batch = self.oldest_unsent
        assert batch is not None
        return batch.size

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def close_open(self) -> None:
        """No more records for the open batch."""
        if self.open is not None:
            self.waiting.append(self.open)
            self.open = None

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether no earlier batch is unresolved."""
        earlier = [other for other in self.in_flight if other.number < batch.number]
        return not earlier and not (self.waiting and self.waiting[0].number < batch.number)

    def put_back(self, batch: ProducerBatch) -> None:
        """Back into the line at its old place."""
        self.in_flight.remove(batch)
        index = 0
        while index < len(self.waiting) and self.waiting[index].number < batch.number:
            index += 1
        self.waiting.insert(index, batch)

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Gives a batch its place among all that the partition ever gets from this producer."""
        if batch.sequence == NO_SEQUENCE:
            batch.sequence = self.next_sequence
            batch.producer_id = self.producer_id
            batch.producer_epoch = self.producer_epoch
            self.next_sequence = (self.next_sequence + batch.builder.count) % SEQUENCE_END

    def postpone(self, until_s: float, reason: str) -> None:
        """Nothing is sent before `until_s`; the reason is told by batches that expire."""
        self.not_before_s = until_s
        for batch in (*self.waiting, self.open):
            if batch is not None:
                batch.last_error = batch.last_error or reason

    def begin_transaction(self, producer_id: int, producer_epoch: int) -> None:
        """Sequences start anew with the epoch; nothing may be in the line."""
        assert self.is_idle
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.next_sequence = 0
        self.renumber_wanted = False

    def renumber(self) -> None:
        """Starts over at the next epoch with all that waits; nothing may be in flight.

        Beyond `EPOCH_MAX` the partition needs a new producer id before anything is sent.
        """
        assert not self.in_flight
        self.renumber_wanted = False
        self.next_sequence = 0
        self.producer_epoch += 1
        for batch in self.waiting:
            batch.sequence = NO_SEQUENCE
            batch.encoded = None
