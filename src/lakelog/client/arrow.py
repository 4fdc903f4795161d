"""Record batches into Arrow columns.

One function, `decode_columns`, two ways behind it: a loop compiled by Numba when that is installed
and works here, else plain Python, which says so once in the log. Both give the same columns and
refuse the same bytes. pyarrow is imported when first needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from lakelog.base.events import event
from lakelog.records.batch import BatchHeader
from lakelog.records.compression import MAX_DECOMPRESSED_BYTES
from lakelog.records.record import Record, decode_records
from lakelog.runtime.api import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client.arrow_compiled import CompiledDecoder

_log = logging.getLogger(__name__)

_OFFSET_END = 2**63 - 1
_MICROSECONDS = 1000
_BINARY_MAX = 2**31 - 1


@cache
def column_types(*, headers: bool = False) -> dict[str, pa.DataType]:
    """The columns and their types: those of Spark's Kafka source without topic and partition."""
    import pyarrow as pa

    types: dict[str, pa.DataType] = {
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "key": pa.binary(),
        "value": pa.binary(),
    }
    if headers:
        pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        types["headers"] = pa.list_(pair)
    return types


def decode_columns(
    batches: Iterable[tuple[BatchHeader, Buffer]],
    *,
    start: int = 0,
    end: int = _OFFSET_END,
    headers: bool = False,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    compiled: bool = True,
) -> pa.RecordBatch:
    """The records with offsets in [start, end) as one `pyarrow.RecordBatch` of `column_types`.

    Control batches are left out. A record without headers has a null list, as in Spark's source.
    Each batch is decompressed to at most `max_bytes`; keys and values together must stay below
    2 GiB each, which is the caller's to arrange (`OverflowError`). Raises `CorruptRecord`.
    """
    rows = [(header, batch) for header, batch in batches if not header.is_control]
    decoder = _compiled_decoder() if compiled else None
    if decoder is not None:
        return decoder.decode(rows, start, end, headers, max_bytes)
    return _decode_plainly(rows, start, end, headers, max_bytes)


@cache
def _compiled_decoder() -> CompiledDecoder | None:
    """The compiled way, if it can be had: whatever goes wrong on the way is only slow."""
    try:
        from lakelog.client.arrow_compiled import CompiledDecoder

        return CompiledDecoder()
    except ImportError as error:
        _log.info(
            "Decoding in plain Python: %s (pip install 'lakelog[fast]')",
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


def _decode_plainly(
    rows: list[tuple[BatchHeader, Buffer]], start: int, end: int, headers: bool, max_bytes: int
) -> pa.RecordBatch:
    records: list[Record] = []
    types: list[int] = []
    for header, batch in rows:
        found = decode_records(batch, header, max_bytes)
        if header.base_offset < start or header.last_offset >= end:
            found = [record for record in found if start <= record.offset < end]
        records += found
        types += [header.timestamp_type] * len(found)
    columns: dict[str, list[Any]] = {
        "offset": [record.offset for record in records],
        "timestamp": [record.timestamp * _MICROSECONDS for record in records],
        "timestampType": types,
        "key": [record.key for record in records],
        "value": [record.value for record in records],
    }
    if headers:
        columns["headers"] = [header_rows(record) for record in records]
    for name in ("key", "value"):
        if sum(len(item or b"") for item in columns[name]) > _BINARY_MAX:
            raise OverflowError(f"the {name}s of one call must stay below 2 GiB")
    return to_batch(columns, headers=headers)


def header_rows(record: Record) -> list[dict[str, Any]] | None:
    """A record's headers as Arrow takes them."""
    return [{"key": key, "value": value} for key, value in record.headers] or None


def to_batch(columns: dict[str, Any], *, headers: bool) -> pa.RecordBatch:
    """Lists or arrays as a batch with the types of `column_types`."""
    import pyarrow as pa

    types = column_types(headers=headers)
    arrays = [
        column if isinstance(column := columns[name], pa.Array) else pa.array(column, kind)
        for name, kind in types.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, list(types))
