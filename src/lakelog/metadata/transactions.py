"""Changes that are larger than one entry of the metadata log: transactions of entries (KIP-868).

A transaction is entries of one controller: `BeginTransaction` and records, more records, then the
last records and `EndTransaction`. Its records take effect together with the last entry, so that no
broker ever has a part of the change. If the controller dies in between, the last entry is never
written: the next change, of this controller or the next one, begins with `AbortTransaction` in an
entry of its own, and the client repeats its request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
    Record,
    encode_record,
    encode_records,
)

TRANSACTION_BYTES_MAX = 64 << 20
"""Limit for the encoded records of one change in bytes: every broker keeps pending records."""

_BEGIN, _END = BeginTransaction(), EndTransaction()
_MARKER_BYTES = len(encode_record(_BEGIN)) + len(encode_record(_END))


class PlannedEntry(NamedTuple):
    """An entry to append, and the image after it."""

    payload: bytes
    image: MetadataImage


def fits(lines: Sequence[bytes], entry_bytes_max: int) -> bool:
    """Return whether encoded records can be committed together, if need be in several entries."""
    size = sum(map(len, lines))
    if size <= entry_bytes_max:
        return True
    line_max = line_bytes_max(entry_bytes_max)
    return size <= TRANSACTION_BYTES_MAX and max(map(len, lines)) <= line_max


def line_bytes_max(entry_bytes_max: int) -> int:
    """Return the largest size of an encoded record in a change of several entries."""
    return entry_bytes_max - _MARKER_BYTES


def entries_of(
    image: MetadataImage,
    records: Sequence[Record],
    lines: Sequence[bytes],
    changed: MetadataImage,
    entry_bytes_max: int,
) -> list[PlannedEntry]:
    """Return the entries that lead from `image` to `changed`, none for no records.

    A transaction that is pending in `image` is aborted first. lines: the encoded records, which
    `fits` accepts. changed: the image after the records; its `end` does not count.
    """
    if not records:
        return []
    entries = []
    if image.pending is not None:
        image = image.apply_all((abort := AbortTransaction(),), image.end + 1)
        entries.append(PlannedEntry(encode_record(abort), image))
    parts = _parts(records, lines, entry_bytes_max)
    for part in parts[:-1]:
        image = image.apply_all(part, image.end + 1)
        entries.append(PlannedEntry(encode_records(part), image))
    last = b"".join(lines) if len(parts) == 1 else encode_records(parts[-1])
    entries.append(PlannedEntry(last, changed._replace(end=image.end + 1)))
    assert all(len(entry.payload) <= entry_bytes_max for entry in entries)
    return entries


def _parts(
    records: Sequence[Record], lines: Sequence[bytes], entry_bytes_max: int
) -> list[list[Record]]:
    """Return the records in parts that fit an entry each, with markers if there are several."""
    if sum(map(len, lines)) <= entry_bytes_max:
        return [list(records)]
    parts: list[list[Record]] = [[_BEGIN]]
    size = _MARKER_BYTES
    for record, line in zip(records, lines, strict=True):
        if size + len(line) > entry_bytes_max:
            parts.append([])
            size = _MARKER_BYTES
        parts[-1].append(record)
        size += len(line)
    parts[-1].append(_END)
    assert sum(map(len, parts)) == len(records) + 2, "each record is in one part"
    return parts


def taking_effect(
    old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
) -> tuple[Record, ...] | None:
    """Return the records that take effect with an entry; None if nothing visible changes.

    records: of the entry; none for a snapshot.
    """
    if not records or (old.pending is None and new.pending is None):
        return records
    if new.pending is not None or isinstance(records[0], AbortTransaction):
        return None
    assert old.pending is not None and isinstance(records[-1], EndTransaction)
    return (*old.pending, *records[:-1])
