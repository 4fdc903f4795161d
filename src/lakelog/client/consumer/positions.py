"""A consumer's positions, and the fetched batches that it has not returned yet. No I/O."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.client.consumer.fetch import Fetched
from lakelog.client.epochs import EpochEnd
from lakelog.client.errors import ClientError
from lakelog.client.isolation import Batch
from lakelog.client.offsets import TopicPartition
from lakelog.records.batch import BatchHeader, CorruptRecord
from lakelog.records.record import Headers, Record, decode_records


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

    offset: that of the next record to return; `None` until it is known. turn: increases with every
    seek, so that responses to earlier requests are dropped. epoch, fetch_epoch: the latest leader
    epochs of records before `offset` and `fetch_offset`; -1 if unknown. checked_epoch: the leader's
    epoch at the last check of `fetch_epoch` against its log.
    """

    __slots__ = (
        "_batches",
        "_records",
        "_records_epoch",
        "checked_epoch",
        "epoch",
        "fetch_epoch",
        "fetch_offset",
        "key",
        "offset",
        "turn",
    )

    def __init__(self, key: TopicPartition, offset: int | None = None) -> None:
        self.key = key
        self.offset = offset
        self.fetch_offset = -1 if offset is None else offset
        self.epoch = self.fetch_epoch = self.checked_epoch = -1
        self.turn = 0
        self._records_epoch = -1
        self._batches: deque[Batch] = deque()
        self._records: deque[ConsumerRecord] = deque()

    @property
    def has_records(self) -> bool:
        """Whether fetched records have not been returned yet."""
        return bool(self._batches or self._records)

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
        self.turn += 1
        self._batches.clear()
        self._records.clear()

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
        # Offsets may be missing at the end: markers, aborted records, compaction. A commit must
        # pass them, or the lag would never reach 0.
        if not self.has_records and self.offset is not None and self.fetch_offset >= self.offset:
            self.offset, self.epoch = self.fetch_offset, self.fetch_epoch
        return taken

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
        self._batches.popleft()
        self._records_epoch = header.partition_leader_epoch
        if not header.is_control:
            self._records += self._wanted(header, records)

    def _wanted(self, header: BatchHeader, records: list[Record]) -> list[ConsumerRecord]:
        topic, partition = self.key
        kind, start = header.timestamp_type, self.offset or 0
        new = tuple.__new__
        return [
            new(ConsumerRecord, (topic, partition, offset, time, key, value, headers, kind))
            for offset, time, key, value, headers in records
            if offset >= start
        ]
