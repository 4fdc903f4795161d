"""A record batch whose header the caller completes."""

from __future__ import annotations

from lakelog.records.batch import HEADER_SIZE, TRANSACTIONAL
from lakelog.records.builder import seal
from lakelog.records.compression import Codec, compress


class EncodedBatch:
    """The records of one partition, compressed, behind space for the header.

    partition: the partition that the rows belong to. count: the number of records. base_timestamp,
    max_timestamp: of the first and the newest record, in milliseconds since the epoch.
    """

    __slots__ = ("_buffer", "_codec", "base_timestamp", "count", "max_timestamp", "partition")

    def __init__(
        self,
        buffer: bytearray | memoryview,
        codec: Codec,
        partition: int,
        count: int,
        base_timestamp: int,
        max_timestamp: int,
    ) -> None:
        """buffer: space for the header and then the records, not compressed."""
        assert count > 0, "a batch has at least one record"
        if codec:
            content = compress(codec, memoryview(buffer)[HEADER_SIZE:])
            buffer = bytearray(HEADER_SIZE)
            buffer += content
        self._buffer = buffer
        self._codec = codec
        self.partition = partition
        self.count = count
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp

    @property
    def size_estimate(self) -> int:
        """The size of the batch in bytes, as it is sent."""
        return len(self._buffer)

    def build(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        base_offset: int = 0,
        *,
        leader_epoch: int = -1,
        is_transactional: bool = False,
    ) -> bytearray | memoryview:
        """Return the batch with these numbers in its header, and with its checksum.

        `BatchBuilder.build` defines the numbers. A second call changes the result of the first
        one: it is the same memory.
        """
        seal(
            self._buffer,
            self._codec | is_transactional * TRANSACTIONAL,
            self.count,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            base_offset,
            leader_epoch,
        )
        return self._buffer
