"""What both decoders share: batches that are decoded together, and the columns they become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from lakelog.records.batch import BatchHeader
from lakelog.records.errors import CorruptRecord
from lakelog.records.record import Headers, record_view
from lakelog.runtime.api import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    RawColumns = dict[str, pa.Array]
    """Arrays of one length; timestamps are still in milliseconds."""

_ROWS_MAX = 65_536
_BYTES_MAX = 8 << 20


@cache
def column_types() -> dict[str, pa.DataType]:
    """The columns that there are: those of Spark's Kafka source without topic and partition, and
    `rawTimestamp`, the milliseconds of a timestamp that is null because it is impossible."""
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
    """Batches that are decoded together: each one's header, and its records decompressed."""

    def __init__(self) -> None:
        self.batches: list[tuple[BatchHeader, Buffer]] = []
        self.size_bytes = 0
        self.rows_max = 0

    @property
    def base_offset(self) -> int:
        return self.batches[0][0].base_offset

    def add(self, header: BatchHeader, content: Buffer) -> None:
        self.batches.append((header, content))
        self.size_bytes += len(content)
        self.rows_max += header.records_count


def group_batches(batches: Iterable[tuple[BatchHeader, Buffer]], max_bytes: int) -> Iterator[Group]:
    """Yield groups of about 8 MiB or 65,536 records; leave out control batches.

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
    """The same error with the place of the batch."""
    return CorruptRecord(f"the batch at offset {header.base_offset} is damaged: {error}")


def header_rows(headers: Headers) -> list[dict[str, Any]] | None:
    """A record's headers as Arrow takes them."""
    return [{"key": key, "value": value} for key, value in headers] or None
