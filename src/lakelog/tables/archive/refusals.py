"""Records that a table cannot have, and how an archive treats them (`table.errors`).

A record is refused if its timestamp is outside the years 1 to 9999 and the table has no column for
such numbers. A batch whose bytes are damaged is refused as a whole, because the limits of its
records are unknown.

A `RowFilter` separates the records of a range into rows and refused ones. Batches are decoded in
large groups, as everywhere. Only if a group has a bad record are the batches since the last row
decoded one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.client.consumer.fetch import Batch, DamagedHeader
from lakelog.columns.decoding.groups import TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS
from lakelog.records.batch import CorruptRecord
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import MAX_DECOMPRESSED_BYTES
from lakelog.records.record import Record, decode_records
from lakelog.tables.topic.errors import BadRecordError, OptionError
from lakelog.tables.topic.offsets import OffsetRange
from lakelog.tables.topic.rows import ArrowRows

KEY = "table.errors"
"""The topic key that selects an `OnBadRecord`."""

BAD_TIMESTAMP = "the timestamp "
"""How the reason of a record with an impossible timestamp begins."""


class OnBadRecord(Enum):
    """How an archive treats a record that its table cannot have.

    STOP: the job ends with an error. DEAD_LETTER: the record goes to a second table. SKIP: the
    table's progress counts it.
    """

    STOP = "stop"
    DEAD_LETTER = "dead-letter"
    SKIP = "skip"

    @classmethod
    def named(cls, name: str) -> OnBadRecord:
        """Return the member of this name. Raises `OptionError`."""
        try:
            return cls(name)
        except ValueError:
            allowed = ", ".join(choice.value for choice in cls)
            raise OptionError(f"{KEY} is {name!r}: expected one of {allowed}") from None


class RefusedRecord(NamedTuple):
    """Offsets `offset` to `offset_last`, inclusive, which are one record or one damaged batch.

    raw: a record batch (magic 2): of this record alone, or the damaged bytes as they are stored;
    empty if the broker refuses to send them.
    """

    topic: str
    partition: int
    offset: int
    offset_last: int
    reason: str
    raw: bytes
    is_damaged: bool

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}: {self.reason}"


class RefusedCount(NamedTuple):
    """Offsets of one partition that are not in the table, within its archived range."""

    dead_letters: int = 0
    skipped: int = 0

    def plus(self, other: RefusedCount) -> RefusedCount:
        """Return the sums."""
        return RefusedCount(self.dead_letters + other.dead_letters, self.skipped + other.skipped)


class Span(NamedTuple):
    """Offsets of one partition from `start` up to, not including, `end`."""

    partition: int
    start: int
    end: int


NAMED_MAX = 100
"""Refused ranges that a task or a commit names; the counts include all others."""


class Refusals:
    """The refused records of one task: their number per partition, and the first ranges."""

    def __init__(self) -> None:
        self.counts: dict[int, RefusedCount] = {}
        self.named: list[Span] = []

    def add(self, refused: RefusedRecord, one: OnBadRecord) -> None:
        """Count a refused record that goes to the dead letters, or is skipped."""
        size = refused.offset_last + 1 - refused.offset
        assert size > 0, "a refused range is not empty"
        is_dead_letter = one is OnBadRecord.DEAD_LETTER
        count = RefusedCount(size, 0) if is_dead_letter else RefusedCount(0, size)
        partition = refused.partition
        self.counts[partition] = self.counts.get(partition, RefusedCount()).plus(count)
        last = self.named[-1] if self.named else None
        end = refused.offset_last + 1
        if last is not None and (last.partition, last.end) == (partition, refused.offset):
            self.named[-1] = last._replace(end=end)
        elif len(self.named) < NAMED_MAX:
            self.named.append(Span(partition, refused.offset, end))


Refuse = Callable[[RefusedRecord], None]
"""Decides about a refused record: raises an error, or returns to leave it out."""

_HINT = (
    f"Set the topic's key {KEY} to dead-letter or skip, or repeat with --errors, to archive the "
    "other records"
)
_NULLABLE = (
    "Repeat with --null-timestamps to archive such a timestamp as null, with its number in the "
    "column rawTimestamp. "
)


def stop(refused: RefusedRecord) -> None:
    """Raise `BadRecordError`, which names the record and the ways to go on."""
    raise BadRecordError(f"{refused}. {'' if refused.is_damaged else _NULLABLE}{_HINT}")


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
