"""Rows of Arrow columns into record batches.

`RowEncoder` has two implementations: loops that Numba compiles, if Numba is installed and works on
this machine, and plain Python. Both return the same bytes and reject the same rows with the same
errors. Loading the compiled loops takes half a second, so a process encodes its first rows in plain
Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from lakelog.base.murmur2 import partition_for_key
from lakelog.columns.encoding.columns import Headers
from lakelog.columns.encoding.rows import EncodedBatch, Limits, Rows, checked_rows, joined
from lakelog.columns.packages import CompiledOrPlain
from lakelog.records.batch import HEADER_SIZE
from lakelog.records.builder import encode_record
from lakelog.records.compression import Codec
from lakelog.records.varint import encode_varint

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.columns.encoding.compiled import CompiledEncoder


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


BATCH_BYTES = 128 << 10
RECORD_BYTES_MAX = (1 << 20) - 128
"""The largest record of a topic with the default max.message.bytes, see `Limits`."""


class RowEncoder:
    """Encodes rows of one topic. Columns are `value` and optionally the others of `COLUMNS`.

    key, value: binary or string of any width, null allowed. headers: a list of structs of key
    (string) and value (binary), or a map. timestamp: of any unit, or milliseconds as int64; null is
    the time of the call. partition: an integer; null where the key decides. Dictionaries, views
    and slices are accepted.

    A row without a partition goes to the partition of its key, as in Java's producer (murmur2).
    Rows without a key fill the batch of one partition, then that of the next (KIP-480).

    partitions: the number of partitions of the topic. batch_bytes: the target size of a batch
    before compression; only a larger record exceeds it, in a batch of its own. record_bytes_max:
    see `Limits`. sticky: the partition at which rows without a key begin. compiled: the
    implementation, by default the faster one.
    """

    def __init__(
        self,
        partitions: int,
        *,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        record_bytes_max: int = RECORD_BYTES_MAX,
        sticky: int = 0,
        compiled: bool | None = None,
    ) -> None:
        assert partitions > 0, "a topic has at least one partition"
        self._limits = Limits(partitions, record_bytes_max)
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._sticky = sticky % partitions
        self._compiled = compiled

    @property
    def sticky(self) -> int:
        """The partition at which the next rows without a key begin."""
        return self._sticky

    def check(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Raise the errors that `encode` would raise for these rows."""
        for _ in checked_rows(batches, self._limits, 0):
            pass

    def encode(self, batches: Iterable[pa.RecordBatch], now_ms: int) -> Iterator[EncodedBatch]:
        """Yield the rows as record batches, which keep the order of the rows of each partition.

        The rows are encoded in groups of about 8 MiB, so small `batches` are joined. now_ms: the
        timestamp of rows without one, in ms since the epoch. Raises `ColumnError` for a table
        that has no rows of records, and `BadRowError` for a row that is too large, or has a
        partition or a timestamp that does not exist. Earlier groups have been yielded then.
        """
        partitions = self._limits.partitions
        for rows in joined(checked_rows(batches, self._limits, now_ms)):
            with_headers = rows.headers is not None
            encoder = _encoders.choose(self._compiled, rows.count, with_headers=with_headers)
            _encoders.plain_rows += rows.count * (encoder is None)
            work = encode_plainly if encoder is None else encoder.encode
            encoded, self._sticky = work(
                rows, partitions, self._sticky, self._batch_bytes, self._codec
            )
            yield from encoded


def _load(with_headers: bool) -> CompiledEncoder:
    from lakelog.columns.encoding.compiled import CompiledEncoder

    return CompiledEncoder(with_headers=with_headers)


_encoders = CompiledOrPlain("Encoding", _load)
