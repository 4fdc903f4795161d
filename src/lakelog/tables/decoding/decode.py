"""Record batches into Arrow columns.

One function, `decode_columns`, two ways behind it: a loop compiled by Numba when that is installed
and works here, else plain Python, which says so once in the log. Both give the same columns and
refuse the same bytes with the same words. Loading the loop takes half a second, so a process that
has read little so far decodes in plain Python too. pyarrow is imported when first needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from lakelog.base.events import event
from lakelog.records.batch import BatchHeader
from lakelog.records.compression import MAX_DECOMPRESSED_BYTES
from lakelog.records.errors import CorruptRecord
from lakelog.records.record import Record, read_records
from lakelog.runtime.api import Buffer
from lakelog.tables.decoding.groups import Group, column_types, corrupt, group_batches, header_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.tables.decoding.compiled import CompiledDecoder
    from lakelog.tables.decoding.groups import RawColumns

_log = logging.getLogger("lakelog.tables")

TIMESTAMP_MIN_MS = -62_135_596_800_000
"""0001-01-01T00:00:00Z: before it neither Python nor Spark's own functions have a name for it."""
TIMESTAMP_MAX_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z."""

_OFFSET_END = 2**63 - 1
_COMPILED_FROM = 100_000
"""As many records take about as long in plain Python as the compiled loop takes to load."""


class ImpossibleTimestampError(ValueError):
    """A record's timestamp is before the year 1 or after 9999."""

    def __init__(self, offset: int, timestamp: int) -> None:
        super().__init__(f"the record at offset {offset} has the timestamp {timestamp} ms")
        self.offset = offset
        self.timestamp = timestamp


def decode_columns(
    batches: Iterable[tuple[BatchHeader, Buffer]],
    columns: Collection[str],
    *,
    start: int = 0,
    end: int = _OFFSET_END,
    null_timestamps: bool = False,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    compiled: bool | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records with offsets in [start, end) in batches of these columns.

    columns: names of `column_types`, at least one. null_timestamps: impossible timestamps are null
    instead of `ImpossibleTimestampError`. max_bytes: bound of one batch of records, decompressed;
    it bounds the memory of a whole call, too. compiled: which way, by default the quicker one.

    Control batches are left out. A record without headers has a null list, as in Spark's source.
    Raises `CorruptRecord`, naming the base offset of the batch.
    """
    assert columns, "a batch without columns has no length"
    assert max_bytes < 2**31, "Arrow's binary columns hold 2 GiB"
    needed = {"offset", *columns} | ({"timestamp"} if "rawTimestamp" in columns else set())
    for group in group_batches(batches, max_bytes):
        decoder = _decoder(compiled, end - max(start, group.base_offset))
        decode = _decode_plainly if decoder is None else decoder.decode
        raw = decode(group, needed, start, end)
        if len(raw["offset"]):
            yield _to_batch(raw, columns, null_timestamps=null_timestamps)


class _PlainRows:
    """How many records this process has decoded in plain Python."""

    count = 0


def _decoder(compiled: bool | None, waiting: int) -> CompiledDecoder | None:
    """The compiled way if it is wanted, or pays off with `waiting` offsets still to read."""
    if compiled is None:
        compiled = _PlainRows.count + waiting >= _COMPILED_FROM
    return _compiled_decoder() if compiled else None


@cache
def _compiled_decoder() -> CompiledDecoder | None:
    """The compiled way, if it can be had: whatever goes wrong on the way is only slow."""
    try:
        from lakelog.tables.decoding.compiled import CompiledDecoder

        return CompiledDecoder()
    except ImportError as error:
        _log.warning(
            "Decoding in plain Python, which is several times slower: %s "
            "(pip install 'lakelog[fast]')",
            error,
            extra=event("decoder_plain"),
        )
    except Exception as error:  # noqa: BLE001 - a compiler may fail in any way
        _log.warning(
            "Decoding in plain Python, the compiled loop failed: %r",
            error,
            extra=event("decoder_plain"),
        )
    return None


def _decode_plainly(group: Group, columns: Collection[str], start: int, end: int) -> RawColumns:
    import pyarrow as pa

    records: list[Record] = []
    types: list[int] = []
    for header, content in group.batches:
        try:
            found = read_records(bytes(content), header)
        except CorruptRecord as error:
            raise corrupt(header, error) from error
        if header.base_offset < start or header.last_offset >= end:
            found = [record for record in found if start <= record.offset < end]
        records += found
        types += [header.timestamp_type] * len(found)
    _PlainRows.count += len(records)
    values: dict[str, Callable[[], list[Any]]] = {
        "offset": lambda: [record.offset for record in records],
        "timestamp": lambda: [_as_int64(record.timestamp) for record in records],
        "timestampType": lambda: types,
        "key": lambda: [record.key for record in records],
        "value": lambda: [record.value for record in records],
        "headers": lambda: [header_rows(record.headers) for record in records],
    }
    kinds = {**column_types(), "timestamp": pa.int64()}
    return {name: pa.array(make(), kinds[name]) for name, make in values.items() if name in columns}


def _as_int64(number: int) -> int:
    """A sum of two numbers of a batch, which wraps around as in Java."""
    return (number + 2**63) % 2**64 - 2**63


def _to_batch(
    raw: RawColumns, columns: Collection[str], *, null_timestamps: bool
) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = dict(raw)
    if "timestamp" in columns or "rawTimestamp" in columns:
        arrays["timestamp"], arrays["rawTimestamp"] = _timestamps(
            raw["timestamp"], raw["offset"], null_allowed=null_timestamps
        )
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns], list(columns))


def _timestamps(
    times: pa.Array, offsets: pa.Array, *, null_allowed: bool
) -> tuple[pa.Array, pa.Array]:
    """Milliseconds as timestamps, and those that can be none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column_types()["timestamp"]
    bounds = pc.min_max(times).as_py()
    if bounds["min"] >= TIMESTAMP_MIN_MS and bounds["max"] <= TIMESTAMP_MAX_MS:
        return times.view(pa.timestamp("ms", tz="UTC")).cast(kind), pa.nulls(len(times), pa.int64())
    too_early, too_late = pc.less(times, TIMESTAMP_MIN_MS), pc.greater(times, TIMESTAMP_MAX_MS)
    impossible = pc.or_(too_early, too_late)
    if not null_allowed:
        first = impossible.index(True).as_py()
        raise ImpossibleTimestampError(offsets[first].as_py(), times[first].as_py())
    nothing = pa.scalar(None, pa.int64())
    possible = pc.if_else(impossible, nothing, times)
    raw = pc.if_else(impossible, times, nothing)
    return possible.view(pa.timestamp("ms", tz="UTC")).cast(kind), raw
