"""Isolation levels of readers: removes records of aborted transactions. No I/O.

A reader of committed records gets no records of open transactions. Brokers store and send batches
whole, so a response contains aborted records and a list of the aborted transactions.

Source: KIP-98, "Reading transactional messages".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakelog.protocol.fetch import AbortedTransaction
from lakelog.records.batch import BatchHeader
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
