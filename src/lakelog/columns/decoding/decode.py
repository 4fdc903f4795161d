"""Record batches into Arrow columns.

`decode_columns` has two implementations: a loop that Numba compiles, if Numba is installed and
works on this machine, and plain Python. Both return the same columns and reject the same bytes with
the same errors. Loading the compiled loop takes half a second, so a process decodes its first
records in plain Python. pyarrow is imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from lakelog.columns.decoding.groups import (
    TIMESTAMP_MAX_MS,
    TIMESTAMP_MIN_MS,
    Group,
    column_types,
    corrupt,
    group_batches,
    header_rows,
)
from lakelog.columns.packages import CompiledOrPlain
from lakelog.records.batch import BatchHeader, CorruptRecord
from lakelog.records.compression import MAX_DECOMPRESSED_BYTES
from lakelog.records.record import Record, read_records
from lakelog.runtime.api import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.columns.decoding.compiled import CompiledDecoder
    from lakelog.columns.decoding.groups import RawColumns

_OFFSET_END = 2**63 - 1


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

    columns: names of `column_types`, at least one. null_timestamps: return null for an impossible
    timestamp instead of raising `ImpossibleTimestampError`. max_bytes: the limit of one batch of
    records, decompressed; it also bounds the memory of a call. compiled: the implementation, by
    default the faster one.

    Control batches are skipped. The headers of a record without headers are null, as in Spark's
    Kafka source. Raises `CorruptRecord`, naming the base offset of the batch.
    """
    assert columns, "a batch without columns has no length"
    assert max_bytes < 2**31, "Arrow's binary columns hold 2 GiB"
    needed = {"offset", *columns} | ({"timestamp"} if "rawTimestamp" in columns else set())
    for group in group_batches(batches, max_bytes):
        waiting = end - max(start, group.base_offset)
        decoder = _decoders.choose(compiled, waiting, with_headers="headers" in needed)
        decode = _decode_plainly if decoder is None else decoder.decode
        raw = decode(group, needed, start, end)
        if len(raw["offset"]):
            yield _to_batch(raw, columns, null_timestamps=null_timestamps)


def _load(with_headers: bool) -> CompiledDecoder:
    from lakelog.columns.decoding.compiled import CompiledDecoder

    return CompiledDecoder(with_headers=with_headers)


_decoders = CompiledOrPlain("Decoding", _load)


def _decode_plainly(group: Group, columns: Collection[str], start: int, end: int) -> RawColumns:
    import pyarrow as pa

    records: list[Record] = []
    types: list[int] = []
    for header, content in group.batches:
        try:
            decoded = read_records(bytes(content), header)
        except CorruptRecord as error:
            raise corrupt(header, error) from error
        if header.base_offset < start or header.last_offset >= end:
            decoded = [record for record in decoded if start <= record.offset < end]
        records += decoded
        types += [header.timestamp_type] * len(decoded)
    _decoders.plain_rows += len(records)
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
    """Return `number` wrapped to 64 bits: base and delta are added with overflow, as in Java."""
    return (number + 2**63) % 2**64 - 2**63


def _to_batch(
    raw: RawColumns, columns: Collection[str], *, null_timestamps: bool
) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = dict(raw)
    if "timestamp" in columns or "rawTimestamp" in columns:
        arrays["timestamp"], raw_times = _timestamps(
            raw["timestamp"], raw["offset"], null_allowed=null_timestamps
        )
        if "rawTimestamp" in columns:
            arrays["rawTimestamp"] = (
                pa.nulls(len(raw["offset"]), pa.int64()) if raw_times is None else raw_times
            )
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns], list(columns))


def _timestamps(
    times: pa.Array, offsets: pa.Array, *, null_allowed: bool
) -> tuple[pa.Array, pa.Array | None]:
    """Return timestamps (null if impossible), and the milliseconds of impossible ones if any.

    Raises `ImpossibleTimestampError` for the first one unless nulls are allowed.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column_types()["timestamp"]
    if times.type == kind:
        return times, None
    bounds = pc.min_max(times).as_py()
    if bounds["min"] >= TIMESTAMP_MIN_MS and bounds["max"] <= TIMESTAMP_MAX_MS:
        return times.view(pa.timestamp("ms", tz="UTC")).cast(kind), None
    too_early, too_late = pc.less(times, TIMESTAMP_MIN_MS), pc.greater(times, TIMESTAMP_MAX_MS)
    impossible = pc.or_(too_early, too_late)
    if not null_allowed:
        first = impossible.index(True).as_py()
        raise ImpossibleTimestampError(offsets[first].as_py(), times[first].as_py())
    nothing = pa.scalar(None, pa.int64())
    possible = pc.if_else(impossible, nothing, times)
    raw = pc.if_else(impossible, times, nothing)
    return possible.view(pa.timestamp("ms", tz="UTC")).cast(kind), raw
