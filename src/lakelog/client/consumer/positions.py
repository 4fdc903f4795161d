"""A consumer's positions, and the fetched batches that it has not returned yet. No I/O.

The topics and partitions that a consumer is given are checked for their types.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

from lakelog.base.errors import ErrorCode
from lakelog.client.consumer.fetch import Batch, Fetched
from lakelog.client.errors import ClientError
from lakelog.client.offsets import EpochEnd, TopicPartition
from lakelog.records.batch import BatchHeader, CorruptRecord
from lakelog.records.record import Headers, Record, decode_records

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client.consumer.columns import Chunk, Projection


def checked_partitions(partitions: Iterable[Any]) -> list[TopicPartition]:
    """Return the partitions. Raises `TypeError` with an example for other types."""
    pairs: list[Any] = [partitions] if isinstance(partitions, str) else list(partitions)
    for pair in pairs:
        if not _is_partition(pair):
            raise TypeError(
                f"a partition is a pair of topic and number, such as ('orders', 0), not {pair!r}; "
                "subscribe() reads all partitions of a topic as a member of a group"
            )
    return pairs


def checked_topics(topics: Iterable[str]) -> list[str]:
    """Return the topics. Raises `TypeError` with an example for other types."""
    names = list(topics)
    if isinstance(topics, str):
        raise TypeError(f"topics must be a list, such as [{topics!r}], not str")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a topic is a name, such as 'orders', not {name!r}")
    return names


def _is_partition(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], SupportsIndex)
    )


class ConsumerRecord(NamedTuple):
    """A record and its place.

    timestamp: milliseconds since the epoch. timestamp_type: 0 for the producer's time, 1 for the
    broker's.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_type: int


class Position:
    """One partition being read.

    offset: that of the next record to return; `None` until it is known. move: increases with every
    seek, so that responses to earlier requests are dropped. epoch, fetch_epoch: the latest leader
    epochs of records before `offset` and `fetch_offset`; -1 if unknown. checked_epoch: the leader's
    epoch at the last check of `fetch_epoch` against its log.
    """

    __slots__ = (
        "_batches",
        "_chunk",
        "_decoded",
        "_one_by_one_end",
        "_records",
        "_records_epoch",
        "checked_epoch",
        "epoch",
        "fetch_epoch",
        "fetch_offset",
        "key",
        "move",
        "offset",
    )

    def __init__(self, key: TopicPartition, offset: int | None = None) -> None:
        self.key = key
        self.offset = offset
        self.fetch_offset = -1 if offset is None else offset
        self.epoch = self.fetch_epoch = self.checked_epoch = -1
        self.move = 0
        self._records_epoch = -1
        self._batches: deque[Batch] = deque()
        self._records: deque[ConsumerRecord] = deque()
        self._decoded: Batch | None = None
        """The batch of `_records`."""
        self._chunk: Chunk | None = None
        self._one_by_one_end = -1
        """Batches before this offset are decoded to columns one by one: one of them is bad."""

    @property
    def has_records(self) -> bool:
        """Whether fetched records have not been returned yet."""
        return bool(self._batches or self._records or self._chunk)

    @property
    def is_running_low(self) -> bool:
        """Whether the consumer is returning the last fetched batch."""
        return not self._batches

    def seek(self, offset: int | None, epoch: int = -1) -> None:
        """Continue at `offset`; with `None` the position is unknown again."""
        self.offset = offset
        self.fetch_offset = -1 if offset is None else offset
        self.epoch = self.fetch_epoch = epoch
        self.checked_epoch = -1
        self.move += 1
        self._batches.clear()
        self._records.clear()
        self._chunk = self._decoded = None

    def add(self, fetched: Fetched) -> None:
        """Append the batches of a fetch at `fetch_offset`."""
        self._batches += fetched.batches
        self.fetch_offset = fetched.next_offset
        self.fetch_epoch = fetched.next_epoch

    def reconcile(self, end: EpochEnd) -> bool:
        """Process the answer that `fetch_epoch`, or the largest epoch before it, ends at `end`.

        Return whether all returned records are in the log. Fetched batches that are no longer in
        the log are dropped. Source: KIP-320.
        """
        assert self.offset is not None
        # The epoch ends at or after the position, so nothing below it was cut.
        if end.end_offset >= self.fetch_offset:
            self.fetch_epoch = min(self.fetch_epoch, end.epoch)
            return True
        if end.end_offset >= self.offset:
            self.seek(self.offset, min(self.epoch, end.epoch))
            return True
        return False

    def take(self, count: int, max_batch_bytes: int) -> list[ConsumerRecord]:
        """Return up to `count` records and advance the position past them.

        The position also passes markers and aborted records. Raises CORRUPT_MESSAGE for a batch
        that cannot be decoded, after the records before it were returned; the position stays there.
        max_batch_bytes: limit of one batch after decompression.
        """
        taken: list[ConsumerRecord] = []
        if self._chunk is not None:
            self._undecode()
        while len(taken) < count and self.has_records:
            if not self._records:
                try:
                    self._decode_next(max_batch_bytes)
                except ClientError:
                    if taken:
                        break
                    raise
                continue
            missing = count - len(taken)
            if missing >= len(self._records):
                taken += self._records
                self._records.clear()
            else:
                taken += [self._records.popleft() for _ in range(missing)]
            self.offset = taken[-1].offset + 1
            self.epoch = self._records_epoch
        assert len(taken) <= count
        self._pass_missing()
        return taken

    def take_columns(
        self, projection: Projection, count: int, max_bytes: int, max_batch_bytes: int
    ) -> list[pa.RecordBatch]:
        """Return up to `count` records of about `max_bytes` as columns; at least one if it can.

        Advances the position as `take` does. Raises the same errors, and INVALID_TIMESTAMP for a
        timestamp that the column cannot represent.
        """
        assert self.offset is not None, "batches were fetched for a known position"
        taken: list[pa.RecordBatch] = []
        if self._records or (self._chunk is not None and self._chunk.projection != projection):
            self._undecode()
        while count > 0 and (max_bytes > 0 or not taken) and self.has_records:
            chunk = self._chunk = self._chunk or self._new_chunk(projection, count, max_batch_bytes)
            try:
                rows = chunk.take(count, max_bytes)
            except ClientError as error:
                if self._narrow(chunk, error, max_batch_bytes):
                    continue
                self._undecode()
                if taken:
                    break
                raise
            if rows is None:
                self._end_chunk(chunk)
                continue
            last = rows.column("offset")[-1].as_py()
            self.offset, self.epoch = last + 1, chunk.epoch_at(last)
            taken.append(chunk.complete(rows))
            count, max_bytes = count - rows.num_rows, max_bytes - rows.nbytes
            if chunk.is_done:
                self._end_chunk(chunk)
        self._pass_missing()
        return taken

    def _new_chunk(self, projection: Projection, count: int, max_batch_bytes: int) -> Chunk:
        """Return a chunk of the next batches, which have `count` records or are all batches."""
        from lakelog.client.consumer.columns import Chunk

        assert self.offset is not None
        batches: list[Batch] = []
        while self._batches and count > 0:
            batches.append(self._batches.popleft())
            header = batches[-1][0]
            count -= header.records_count
            if header.base_offset < self._one_by_one_end:
                break
        return Chunk(self.key, projection, batches, self.offset, max_batch_bytes)

    def _narrow(self, chunk: Chunk, error: ClientError, max_batch_bytes: int) -> bool:
        """After an error, decode less: the records before the bad one. Return whether it can."""
        from lakelog.client.consumer.columns import Chunk, UnreadableTimestampError

        assert self.offset is not None
        if len(chunk.batches) > 1:
            self._one_by_one_end = chunk.batches[-1][0].last_offset + 1
            self._undecode()
            return True
        if isinstance(error, UnreadableTimestampError) and error.offset > self.offset:
            start, end = self.offset, error.offset
            self._chunk = Chunk(
                chunk.key, chunk.projection, chunk.batches, start, max_batch_bytes, end=end
            )
            return True
        return False

    def _end_chunk(self, chunk: Chunk) -> None:
        """Forget a chunk whose rows were returned, or continue behind its end."""
        assert self.offset is not None
        if chunk.is_cut:
            self.offset = max(self.offset, chunk.end)
            self._undecode()
        self._chunk = None

    def _undecode(self) -> None:
        """Return decoded batches to the others, up to the position: they are decoded again."""
        decoded = [] if self._chunk is None else self._chunk.batches
        if self._records and self._decoded is not None:
            decoded = [self._decoded]
        left = [batch for batch in decoded if batch[0].last_offset >= (self.offset or 0)]
        self._batches.extendleft(reversed(left))
        self._records.clear()
        self._chunk = self._decoded = None

    def _pass_missing(self) -> None:
        """Pass offsets that are missing at the end: markers, aborted records, compaction.

        A commit must pass them, or the lag would never reach 0.
        """
        if not self._records:
            self._decoded = None  # it would keep the memory of a whole response
        if not self.has_records and self.offset is not None and self.fetch_offset >= self.offset:
            self.offset, self.epoch = self.fetch_offset, self.fetch_epoch

    def _decode_next(self, max_batch_bytes: int) -> None:
        header, batch = self._batches[0]
        try:
            records = decode_records(batch, header, max_batch_bytes)
        except CorruptRecord as error:
            last = header.last_offset
            where = f"{self.key[0]}-{self.key[1]}, batch at offsets {header.base_offset} to {last}"
            text = f"{where}: {error}; the next batch begins at {last + 1}"
            raise ClientError(ErrorCode.CORRUPT_MESSAGE, text) from error
        # Only after decoding: a damaged batch stays, and each `poll` reports it again.
        self._decoded = self._batches.popleft()
        self._records_epoch = header.partition_leader_epoch
        if not header.is_control:
            self._records += self._unread(header, records)

    def _unread(self, header: BatchHeader, records: list[Record]) -> list[ConsumerRecord]:
        topic, partition = self.key
        kind, start = header.timestamp_type, self.offset or 0
        new = tuple.__new__
        return [
            new(ConsumerRecord, (topic, partition, offset, time, key, value, headers, kind))
            for offset, time, key, value, headers in records
            if offset >= start
        ]
