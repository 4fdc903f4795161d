"""Separates the records of a range into rows of a table and refused ones.

Batches are decoded in large groups, as everywhere. Only if a group has a bad record are the batches
since the last row decoded one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.client.consumer.fetch import Batch, DamagedHeader
from lakelog.columns.decoding.groups import TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS
from lakelog.records.batch import CorruptRecord
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import MAX_DECOMPRESSED_BYTES
from lakelog.records.record import Record, decode_records
from lakelog.tables.archive.refusals import BAD_TIMESTAMP, Refuse, RefusedRecord
from lakelog.tables.topic.errors import BadRecordError
from lakelog.tables.topic.offsets import OffsetRange
from lakelog.tables.topic.rows import ArrowRows

_RAW_TIMESTAMP = "rawTimestamp"
_WRONG_CHECKSUM = "its checksum is wrong"
_UNSERVED = "the broker refuses it, because the file is damaged"


class RowFilter:
    """Converts ranges into Arrow record batches, without the records that the schema cannot have.

    schema: as for `ArrowRows`, with the column `offset`. A nullable `timestamp` accepts every
    number. refuse: is called with each refused record, in order; its errors end the conversion.
    """

    def __init__(self, schema: pa.Schema, refuse: Refuse) -> None:
        self._schema = schema
        self._refuse = refuse
        accepts_all = schema.field("timestamp").nullable
        self._rows = ArrowRows(schema, null_timestamps=accepts_all, hint="")
        # Rows whose timestamp is null have its number in the last column.
        index = schema.get_field_index("timestamp")
        nullable = schema.set(index, schema.field(index).with_nullable(True))
        if not accepts_all:
            nullable = nullable.append(pa.field(_RAW_TIMESTAMP, pa.int64()))
        self._all_rows = ArrowRows(nullable, null_timestamps=True, hint="")

    def convert(
        self, offset_range: OffsetRange, batches: Iterable[Batch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the range in batches of about 8 MiB. Raises the errors of `refuse`."""
        source, left = iter(batches), offset_range
        undecoded: deque[Batch] = deque()
        while True:
            try:
                for rows in self._rows.convert(left, _noted(source, undecoded)):
                    left = replace(left, start=rows.column("offset")[-1].as_py() + 1)
                    while undecoded and undecoded[0][0].last_offset < left.start:
                        undecoded.popleft()
                    yield rows
                return
            except BadRecordError:
                suspects = list(undecoded)
            assert suspects, "a decoder fails for a batch that it has read"
            undecoded.clear()
            for batch in suspects:
                yield from self._rows_of(left, batch)
            # Never before the last row: `convert` would repeat rows of a batch that is read again.
            following = max(left.start, suspects[-1][0].last_offset + 1)
            left = replace(left, start=min(following, left.end))

    def _rows_of(self, part: OffsetRange, batch: Batch) -> Iterator[pa.RecordBatch]:
        """Yield the good rows of one batch, and refuse its other records."""
        try:
            _check(batch)
            batches = list(self._rows.convert(part, [batch]))
        except BadRecordError:
            header, content = batch
            if isinstance(header, DamagedHeader):
                fault = _WRONG_CHECKSUM if content else _UNSERVED
                self._refuse(_damaged(part, batch, fault))
                return
            try:
                records = decode_records(content, header, MAX_DECOMPRESSED_BYTES)
            except CorruptRecord as error:
                self._refuse(_damaged(part, batch, str(error)))
                return
            for record in map(_with_int64, records):
                if not _is_possible(record) and part.start <= record.offset < part.end:
                    self._refuse(_impossible(part, record))
            batches = [self._possible(rows) for rows in self._all_rows.convert(part, [batch])]
        yield from (rows for rows in batches if rows.num_rows)

    def _possible(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that have a timestamp, in the schema of the table."""
        kept = rows.filter(pc.is_valid(rows.column("timestamp")))
        arrays = [kept.column(field.name) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _impossible(part: OffsetRange, record: Record) -> RefusedRecord:
    builder = BatchBuilder()
    builder.append(record.timestamp, record.key, record.value, record.headers)
    raw = bytes(builder.build(base_offset=record.offset))
    reason = f"{BAD_TIMESTAMP}{record.timestamp} (milliseconds) is not within the years 1 to 9999"
    at = record.offset
    return RefusedRecord(part.topic, part.partition, at, at, reason, raw, is_damaged=False)


def _noted(batches: Iterator[Batch], noted: deque[Batch]) -> Iterator[Batch]:
    for batch in batches:
        noted.append(batch)
        _check(batch)
        yield batch


def _check(batch: Batch) -> None:
    # A decoder may find nothing wrong: the damage may be within a value.
    if isinstance(batch[0], DamagedHeader):
        raise BadRecordError(_WRONG_CHECKSUM)


def _with_int64(record: Record) -> Record:
    """Return the record with the timestamp of the decoders, which add with overflow, as Java."""
    return record._replace(timestamp=(record.timestamp + 2**63) % 2**64 - 2**63)


def _is_possible(record: Record) -> bool:
    return TIMESTAMP_MIN_MS <= record.timestamp <= TIMESTAMP_MAX_MS


def _damaged(part: OffsetRange, batch: Batch, fault: str) -> RefusedRecord:
    """Return the part of a batch within the range: another task may have the rest of its range."""
    header, content = batch
    first = max(header.base_offset, part.start)
    last = min(header.last_offset, part.end - 1)
    reason = (
        f"the batch of the offsets {header.base_offset} to {header.last_offset} cannot be read: "
        f"{fault}"
    )
    return RefusedRecord(
        part.topic, part.partition, first, last, reason, bytes(content), is_damaged=True
    )
