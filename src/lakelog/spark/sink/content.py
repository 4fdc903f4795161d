"""The identity of the rows of a batch: their number, and a digest. No I/O.

Batches are compared with it, not only by their numbers (`control.py`). Spark may divide the rows of
a repeated batch among other tasks, in another order. The digest is therefore a sum over the rows:
of the checksum (CRC-32C) of topic, key and value, of the checksums of the headers, and of the
timestamps. The partition of a row does not count, because rows without a key are dealt to the
partitions in the order of the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING

from lakelog.records import crc

if TYPE_CHECKING:
    import pyarrow as pa

_VERSION = 1
_FORMAT = Struct(">bqq")
_SEPARATOR = b"\0"
_DIGEST_MASK = (1 << 63) - 1
"""A digest fits into a column of 64-bit signed integers."""


@dataclass(frozen=True, slots=True)
class Content:
    """The rows of a batch. digest: `None` in the control record of an earlier lakelog."""

    rows: int = 0
    digest: int | None = 0

    def __add__(self, other: Content) -> Content:
        """Return the content of the rows of both."""
        assert self.digest is not None and other.digest is not None, "only records lack digests"
        return Content(self.rows + other.rows, (self.digest + other.digest) & _DIGEST_MASK)

    def to_bytes(self) -> bytes:
        """Return the content as the coordinator of a sink keeps it."""
        assert self.digest is not None, "only records lack digests"
        return _FORMAT.pack(_VERSION, self.rows, self.digest)

    @classmethod
    def from_bytes(cls, data: bytes) -> Content | None:
        """Return the content, `None` if an earlier or a later lakelog wrote the record."""
        if len(data) != _FORMAT.size or data[0] != _VERSION:
            return None
        _, rows, digest = _FORMAT.unpack(data)
        return cls(rows, digest)


class Tally:
    """Counts the rows that pass through one task. topic: the option, which the column yields to."""

    def __init__(self, topic: str | None) -> None:
        self._topic = topic
        self.content = Content()

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, and add them to `content`."""
        for batch in batches:
            self.content += content_of(batch, self._topic)
            yield batch


def content_of(batch: pa.RecordBatch, topic: str | None) -> Content:
    """Return the content of the rows. topic: the option, which takes precedence over the column."""
    names = batch.schema.names
    counted = ("key", "value") if topic is not None else ("topic", "key", "value")
    rows = _joined([_bytes(batch.column(name)) for name in counted if name in names])
    # As if the option were a column.
    start = 0 if topic is None else crc.crc32c(topic.encode() + _SEPARATOR)
    digest = sum(map(crc.crc32c, rows, repeat(start)))
    if "headers" in names:
        keys, values = batch.column("headers").flatten().flatten()
        digest += sum(map(crc.crc32c, _joined([_bytes(keys), _bytes(values)]), repeat(0)))
    if "timestamp" in names:
        digest += _sum_of_times(batch.column("timestamp"))
    return Content(batch.num_rows, digest & _DIGEST_MASK)


def _bytes(column: pa.Array) -> pa.Array:
    """Return the column as bytes; null is empty."""
    import pyarrow as pa

    return column.cast(pa.large_binary()).fill_null(b"")


def _joined(columns: list[pa.Array]) -> list[bytes]:
    """Return the items of each row as one value, so that Python handles a row once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    separator = pa.scalar(_SEPARATOR, pa.large_binary())
    return list(pc.binary_join_element_wise(*columns, separator).to_pylist())


def _sum_of_times(column: pa.Array) -> int:
    """Return the sum of the timestamps in milliseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return int(pc.sum(column.cast(pa.int64())).as_py() or 0)
