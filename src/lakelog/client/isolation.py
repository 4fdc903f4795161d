"""What a reader sees of transactions: everything, or only what was committed; no I/O.

A broker that is asked for committed records returns nothing of transactions that are still open,
but batches are stored and sent whole: what was aborted is among them, with a list that says whose.

Source: KIP-98, "Reading transactional messages".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakelog.protocol.fetch import AbortedTransaction
from lakelog.records.batch import BatchHeader
from lakelog.records.control import read_marker

LEVELS = {"read_uncommitted": False, "read_committed": True}
"""Kafka's names, and whether only committed records are read."""

Batch = tuple[BatchHeader, memoryview]


def without_aborted(batches: Iterable[Batch], aborted: Sequence[AbortedTransaction]) -> list[Batch]:
    """The batches of one answer but for those of its `aborted` transactions; markers stay.

    A transaction is aborted from its first offset to the abort marker of its producer. Raises
    `CorruptRecord` for a marker that cannot be read.
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
