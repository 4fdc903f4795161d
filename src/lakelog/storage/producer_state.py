"""What a log remembers of its idempotent producers: epoch, sequences, the last five batches.

A batch that repeats one of the last five (same epoch, same first and last sequence) is a retry and
is answered with the first one's offsets; otherwise sequences must go on without a gap, from 0
after an epoch bump. A producer that is not known may begin anywhere: its state may have expired
with it none the wiser (KIP-360). Sequences run from 0 to 2^31 - 1 and around.

Source: KIP-98; `ProducerStateManager`, `ProducerStateEntry` and `ProducerAppendInfo` of
`org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.batch import BatchHeader

BATCHES_KEPT = 5
NO_PRODUCER_ID = -1
NO_EPOCH = -1
_SEQUENCE_MAX = 0x7FFFFFFF


class BatchMetadata(NamedTuple):
    """Where one batch of a producer lies. Only the last record's timestamp is known."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return self.last_sequence - self.offset_delta & _SEQUENCE_MAX


class ProducerEntry:
    """One producer. `batches` are its newest, oldest first."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "txn_first_offset")

    def __init__(self, epoch: int = NO_EPOCH) -> None:
        self.epoch = epoch
        self.batches: list[BatchMetadata] = []
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.txn_first_offset = -1


class ProducerStateTable:
    """The producers of one log. `end_offset` is how far the log is reflected in it."""

    __slots__ = ("end_offset", "entries", "expiration_ms")

    def __init__(self, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = 0

    def __len__(self) -> int:
        return len(self.entries)

    def admit(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch that `header` repeats, if it is one of the last five, else `None`.

        Raises `KafkaError` 47 for an older epoch and 45 for a gap.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.epoch == NO_EPOCH:
            return None
        last = -1
        if header.producer_epoch == entry.epoch:
            if not entry.batches:
                return None
            last = entry.batches[-1].last_sequence
        if (
            header.base_sequence == (last + 1) & _SEQUENCE_MAX
            and header.producer_epoch >= entry.epoch
        ):
            return None
        return self._find_duplicate(entry, header, last)

    def _find_duplicate(
        self, entry: ProducerEntry, header: BatchHeader, last: int
    ) -> BatchMetadata:
        if header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {header.producer_epoch} of producer {header.producer_id} "
                f"is older than {entry.epoch}",
            )
        if header.producer_epoch == entry.epoch:
            ends = header.base_sequence, header.last_sequence
            for batch in entry.batches:
                if (batch.first_sequence, batch.last_sequence) == ends:
                    return batch
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {header.base_sequence} after {last}",
        )

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Takes in a batch that has been appended at `base_offset`, or is found in the log."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_timestamp = header.max_timestamp
        if header.base_sequence < 0:
            return
        if len(entry.batches) == BATCHES_KEPT:
            del entry.batches[0]
        delta = header.last_offset_delta
        entry.batches.append(
            BatchMetadata(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        )
        if header.is_transactional and entry.txn_first_offset < 0:
            entry.txn_first_offset = base_offset

    def remove_expired(self, now_ms: int) -> int:
        """Forgets producers idle for `expiration_ms` outside a transaction; returns how many."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= self.expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)
