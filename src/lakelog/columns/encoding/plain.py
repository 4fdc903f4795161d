"""Rows into record batches in plain Python; `loop.py` is the compiled twin."""

from __future__ import annotations

from itertools import pairwise

from lakelog.base.murmur2 import partition_for_key
from lakelog.columns.encoding.batch import EncodedBatch
from lakelog.columns.encoding.columns import Headers
from lakelog.columns.encoding.rows import Rows
from lakelog.records.batch import HEADER_SIZE
from lakelog.records.builder import encode_record
from lakelog.records.compression import Codec
from lakelog.records.varint import encode_varint

_Headers = list[tuple[str, bytes | None]]


class _OpenBatch:
    """The records of one batch until it is full. Sizes are in bytes, times in milliseconds."""

    def __init__(self, partition: int, base_timestamp: int) -> None:
        self.partition = partition
        self.base_timestamp = self.max_timestamp = base_timestamp
        self.parts: list[bytes] = []
        self.count = 0
        self.size = HEADER_SIZE

    def encode(
        self, time: int, key: bytes | None, value: bytes | None, headers: _Headers
    ) -> tuple[bytes, bytes]:
        """Return the length and the encoding of the next record."""
        body = encode_record(time - self.base_timestamp, self.count, key, value, headers)
        return encode_varint(len(body)), body

    def add(self, time: int, length: bytes, body: bytes) -> None:
        self.parts += (length, body)
        self.count += 1
        self.size += len(length) + len(body)
        self.max_timestamp = max(self.max_timestamp, time)

    def encoded(self, codec: Codec) -> EncodedBatch:
        buffer = bytearray(HEADER_SIZE)
        buffer += b"".join(self.parts)
        assert len(buffer) == self.size, "sizes are added up correctly"
        times = self.base_timestamp, self.max_timestamp
        return EncodedBatch(buffer, codec, self.partition, self.count, *times)


def encode_plainly(
    rows: Rows, partitions: int, sticky: int, batch_bytes: int, codec: Codec
) -> tuple[list[EncodedBatch], int]:
    """Return the batches of the rows and the next sticky partition; see `loop.plan`."""
    nothing = [None] * rows.count
    keys = nothing if rows.keys is None else rows.keys.to_pylist()
    row_partitions = nothing if rows.partitions is None else rows.partitions.to_pylist()
    headers = [[]] * rows.count if rows.headers is None else _header_rows(rows.headers)
    columns = (rows.timestamps.to_pylist(), keys, rows.values.to_pylist(), headers, row_partitions)
    batches: list[_OpenBatch] = []
    opened: dict[int, _OpenBatch] = {}
    for time, key, value, pairs, given in zip(*columns, strict=True):
        is_sticky = given is None and key is None
        partition = sticky if is_sticky else given
        if partition is None:
            partition = partition_for_key(key, partitions)
        batch = opened.get(partition)
        while batch is not None:
            length, body = batch.encode(time, key, value, pairs)
            if batch.size + len(length) + len(body) <= batch_bytes:
                break
            del opened[partition]
            if partition == sticky:
                sticky = (sticky + 1) % partitions
            if is_sticky:
                partition = sticky
            batch = opened.get(partition)
        if batch is None:
            batch = opened[partition] = _OpenBatch(partition, time)
            batches.append(batch)
            length, body = batch.encode(time, key, value, pairs)
        batch.add(time, length, body)
    if sticky in opened:
        sticky = (sticky + 1) % partitions
    return [batch.encoded(codec) for batch in batches], sticky


def _header_rows(headers: Headers) -> list[_Headers]:
    ends = headers.ends.to_pylist()
    keys = [key.decode() for key in headers.keys.to_pylist()]
    pairs = list(zip(keys, headers.values.to_pylist(), strict=True))
    return [pairs[start:end] for start, end in pairwise(ends)]
