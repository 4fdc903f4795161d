"""What both decoders share: groups of batches that are decoded together, and column types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from lakelog.records.batch import BatchHeader, CorruptRecord
from lakelog.records.record import Headers, record_view
from lakelog.runtime.api import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    RawColumns = dict[str, pa.Array]
    """Arrays of one length; timestamps may still be numbers of milliseconds."""

TIMESTAMP_MIN_MS = -62_135_596_800_000
"""0001-01-01T00:00:00Z: Python and Spark's functions cannot represent earlier times."""
TIMESTAMP_MAX_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z."""

_ROWS_MAX = 65_536
_BYTES_MAX = 2 << 20
"""Larger batches of Arrow exceed what Java's allocator and the caches of a processor keep."""


@cache
def column_types() -> dict[str, pa.DataType]:
    """Return the types of all columns that can be decoded, by name.

    These are the columns of Spark's Kafka source without topic and partition, and `rawTimestamp`:
    the milliseconds of an impossible timestamp, which is null in `timestamp`.
    """
    import pyarrow as pa

    pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return {
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pair),
        "rawTimestamp": pa.int64(),
    }


class Group:
    """Batches that are decoded together: pairs of a header and the decompressed records.

    size_bytes: the size of all records, decompressed. rows_max: the number of records.
    """

    def __init__(self) -> None:
        self.batches: list[tuple[BatchHeader, Buffer]] = []
        self.size_bytes = 0
        self.rows_max = 0

    @property
    def base_offset(self) -> int:
        """The offset of the first batch; there must be one."""
        return self.batches[0][0].base_offset

    def add(self, header: BatchHeader, content: Buffer) -> None:
        """Add a batch; `content` is its decompressed records."""
        assert not header.is_control, "markers are no rows"
        self.batches.append((header, content))
        self.size_bytes += len(content)
        self.rows_max += header.records_count


def group_batches(batches: Iterable[tuple[BatchHeader, Buffer]], max_bytes: int) -> Iterator[Group]:
    """Yield groups of about 2 MiB or 65,536 records; leave out control batches.

    Raises `CorruptRecord`, naming the base offset of the batch, when a batch does not decompress
    or decompresses to more than `max_bytes`.
    """
    group = Group()
    for header, batch in batches:
        if header.is_control:
            continue
        try:
            content = record_view(batch, header, max_bytes)
        except CorruptRecord as error:
            raise corrupt(header, error) from error
        is_full = group.size_bytes + len(content) > _BYTES_MAX
        if group.batches and (is_full or group.rows_max + header.records_count > _ROWS_MAX):
            yield group
            group = Group()
        group.add(header, content)
    if group.batches:
        yield group


def corrupt(header: BatchHeader, error: CorruptRecord) -> CorruptRecord:
    """Return the error with the base offset of the batch."""
    return CorruptRecord(f"the batch at offset {header.base_offset} is damaged: {error}")


def header_rows(headers: Headers) -> list[dict[str, Any]] | None:
    """Return a record's headers in the form that Arrow accepts; `None` if there are none."""
    return [{"key": key, "value": value} for key, value in headers] or None
