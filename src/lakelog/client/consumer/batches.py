"""Fetched batches: aborted transactions, and damaged bytes. No I/O.

A reader of committed records gets no records of open transactions. Brokers store and send batches
whole, so a response contains aborted records and a list of the aborted transactions (KIP-98,
"Reading transactional messages").

A checksum shows that a batch is damaged, not where. A reader can continue if the batch's limits
are certain: its length, because the next batch begins after it, and its last offset, because the
next fetch begins there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakelog.protocol.fetch import AbortedTransaction
from lakelog.records.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    CorruptRecord,
    check_crc,
    read_header,
)
from lakelog.records.control import read_marker

LEVELS = {"read_uncommitted": False, "read_committed": True}
"""Kafka's names of the levels, and whether each reads committed records only."""

Batch = tuple[BatchHeader, memoryview]


def without_aborted(batches: Iterable[Batch], aborted: Sequence[AbortedTransaction]) -> list[Batch]:
    """Return the batches of a response outside `aborted` transactions; markers stay.

    An aborted transaction reaches from its first offset to the abort marker of its producer. Raises
    `CorruptRecord` for a damaged marker.
    """
    if not aborted:
        return list(batches)
    begins = sorted(aborted, key=lambda row: row.first_offset, reverse=True)
    producers: set[int] = set()
    kept: list[Batch] = []
    for header, batch in batches:
        while begins and begins[-1].first_offset <= header.last_offset:
            producers.add(begins.pop().producer_id)
        if header.producer_id not in producers or not header.is_transactional:
            kept.append((header, batch))
        elif header.is_control:
            kept.append((header, batch))
            marker = read_marker(batch, header)
            if marker is not None and not marker.commit:
                producers.discard(header.producer_id)
    return kept


class DamagedHeader(BatchHeader):
    """The header of a batch with a wrong checksum: only its limits are certain."""

    __slots__ = ()

    @property
    def is_control(self) -> bool:
        """False: the attributes may be damaged, and a reader must not drop the batch."""
        return False

    @property
    def is_transactional(self) -> bool:
        """False, for the same reason."""
        return False


def unserved(offset: int, end: int) -> Batch:
    """Return a damaged batch without bytes: a broker refuses to read [offset, end).

    A broker that finds the damage before a reader does sends an error instead of the batch.
    """
    count = end - offset
    length = HEADER_SIZE - LENGTH_OVERHEAD
    return (
        DamagedHeader(offset, length, -1, MAGIC, 0, 0, count - 1, -1, -1, -1, -1, -1, count),
        memoryview(b""),
    )


def is_damaged(header: BatchHeader, batch: memoryview) -> bool:
    """Return whether a batch has an unknown format or a wrong checksum."""
    return header.magic != MAGIC or not check_crc(batch, 0, header)


def with_damaged(
    batches: Sequence[Batch], records: memoryview, offset: int, end: int
) -> list[Batch]:
    """Return the batches of a response; damaged batches have a `DamagedHeader`.

    records: the bytes of the response, which begin with `batches`. offset: the requested one.
    end: the exclusive end of the readable log. Raises `CorruptRecord` for a damaged batch whose
    limits are not certain.
    """
    kept: list[Batch] = []
    due, position = -1, 0
    for header, batch in batches:
        position += len(batch)
        if is_damaged(header, batch):
            damaged = DamagedHeader(*HEADER.unpack_from(batch))
            # The first batch may begin before the requested offset, but has it.
            is_due = header.base_offset >= due if kept else header.last_offset >= offset
            following = _following(records, position)
            if not (is_due and header.base_offset >= 0 and _ends_right(header, following, end)):
                raise CorruptRecord(
                    f"the batch at offset {header.base_offset} is damaged, and so is its header: "
                    "it is not known where the next batch begins"
                )
            kept.append((damaged, batch))
        else:
            kept.append((header, batch))
        due = header.last_offset + 1
    return kept


def _following(records: memoryview, position: int) -> BatchHeader | None:
    """Return the next header, which may be that of a cut batch. Raises `CorruptRecord`."""
    if len(records) - position < HEADER_SIZE:
        return None
    return read_header(records, position)


def _ends_right(header: BatchHeader, following: BatchHeader | None, end: int) -> bool:
    """Return whether the batch surely has the last offset that its header states.

    The number of records or the next batch must confirm it: with an offset that is too low, the
    offsets after it would be lost without a trace.
    """
    if not 0 < header.last_offset_delta + 1 <= end - header.base_offset:
        return False
    is_full = header.records_count == header.last_offset_delta + 1
    if following is None:
        return is_full
    gap = following.base_offset - header.last_offset - 1
    is_next = following.magic == MAGIC and gap >= 0 and following.base_offset < end
    return is_next and (is_full or gap == 0)
