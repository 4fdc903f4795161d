"""The producers of a log: epoch, sequences, the last five batches, transactions.

A batch that repeats one of the last five (same epoch, same first and last sequence) is a retry and
gets the offsets of the first attempt. Otherwise sequences must continue without a gap, from 0 after
an epoch bump. An unknown producer may begin at most sequences (`beginnings`). Sequences run from 0
to 2^31 - 1 and then from 0 again.

When a batch was rejected for a reason that passes, such as a full disk, the producer's next batches
are on their way. They get the error of that batch and not 45: after a 45, librdkafka begins a new
epoch and sends records again that other leaders hold already.

A transaction begins with its producer's first transactional batch, which needs a verification
(`beginnings`), and ends with a marker. The first offset of all transactions that are open, or
whose marker is not committed, is the last stable offset: `read_committed` consumers read up to it.

Source: KIP-98, KIP-890; `ProducerStateManager`, `ProducerStateEntry` and `ProducerAppendInfo` of
`org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import nsmallest
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.batch import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
    BatchHeader,
    HeaderFields,
)
from lakelog.records.control import NO_DECISION, EndTransactionMarker
from lakelog.storage.producers.beginnings import (
    AWAITED_MS,
    Beginnings,
    RejectedBatch,
    Verification,
    Verifications,
)
from lakelog.storage.segments.txn_index import AbortedTransaction
from lakelog.storage.validation import Origin

BATCHES_KEPT = 5
EXPIRATION_MS = 86_400_000
NO_PRODUCER_ID = -1
NO_EPOCH = -1
SEQUENCE_MAX = 0x7FFFFFFF
_BUMPS_EPOCH = 2
"""The first transaction version whose markers have a bumped epoch (KIP-890)."""


class BatchMetadata(NamedTuple):
    """One batch of a producer. Only the timestamp of its last record is known, in ms."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        """The offset of the first record, inclusive."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """The sequence of the first record; it wraps from 2^31 - 1 to 0 (KIP-98)."""
        return self.last_sequence - self.offset_delta & SEQUENCE_MAX


class ProducerEntry:
    """One producer; `batches` are its newest, oldest first, at most `BATCHES_KEPT`."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "decision",
        "epoch",
        "last_timestamp",
        "rejected",
        "txn_first_offset",
    )

    def __init__(self, epoch: int = NO_EPOCH) -> None:
        self.epoch = epoch
        self.batches: list[BatchMetadata] = []
        self.coordinator_epoch = -1
        """Coordinator epoch of the last marker; -1 before the first."""
        self.decision = NO_DECISION
        """The highest number of a decision in the markers of that coordinator epoch."""
        self.last_timestamp = -1
        self.rejected: RejectedBatch | None = None
        """The last batch that was rejected for a reason that passes; it may have been repeated."""
        self.txn_first_offset = -1
        """First offset of its open transaction; -1 without one."""

    @property
    def last_sequence(self) -> int:
        """-1 when no batch of its present epoch is known."""
        return self.batches[-1].last_sequence if self.batches else -1

    def next_sequence(self, epoch: int) -> int:
        """Return the sequence with which the next batch of `epoch` has to begin (KIP-360)."""
        return self.last_sequence + 1 & SEQUENCE_MAX if epoch == self.epoch else 0

    def add(self, base_sequence: int, offset_delta: int, last_offset: int, timestamp: int) -> None:
        """Note an appended batch of the present epoch; the time is in milliseconds.

        The last five batches are kept, as in Kafka: a client has at most five requests in flight.
        """
        batches = self.batches
        if len(batches) == BATCHES_KEPT:
            # A list of five is faster than a deque, and hot: every append of a producer passes
            # here.
            del batches[0]
        last_sequence = -1 if base_sequence < 0 else base_sequence + offset_delta & SEQUENCE_MAX
        batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp))
        self.last_timestamp = timestamp

    def add_coalesced(self, headers: Sequence[HeaderFields], offset: int) -> None:
        """Note batches of the present epoch that have been appended from `offset` on."""
        batches = self.batches
        for fields in headers:
            delta, self.last_timestamp = fields[LAST_OFFSET_DELTA], fields[MAX_TIMESTAMP]
            sequence = fields[BASE_SEQUENCE] + delta & SEQUENCE_MAX
            batches.append(BatchMetadata(sequence, offset + delta, delta, fields[MAX_TIMESTAMP]))
            offset += delta + 1
        del batches[:-BATCHES_KEPT]

    def begin_epoch(self, epoch: int) -> None:
        """Forget the batches of an older epoch: sequences restart with each epoch (KIP-360)."""
        if self.epoch != epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerStateTable:
    """The producers of one log, after the batches before `end_offset`."""

    __slots__ = (
        "__weakref__",
        "_ended",
        "_on_new",
        "_ongoing",
        "beginnings",
        "end_offset",
        "entries",
        "expiration_ms",
        "first_unstable_offset",
        "verifications",
    )

    def __init__(
        self, expiration_ms: int = EXPIRATION_MS, on_new: Callable[[], None] | None = None
    ) -> None:
        """`on_new`: called when the log gets a new producer."""
        self._on_new = on_new
        self.expiration_ms = expiration_ms
        self.entries: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, None] = {}
        self._ended: dict[int, int] = {}
        """Transactions whose markers are not committed: marker offset by first offset."""
        self.first_unstable_offset = -1
        """First offset of all transactions that are open or have an uncommitted marker; else -1."""
        self.verifications = Verifications()
        self.beginnings = Beginnings(lambda: 0)
        """Its owner sets the clock."""
        self.end_offset = 0

    def __len__(self) -> int:
        return len(self.entries)

    def load(self, entries: dict[int, ProducerEntry]) -> None:
        """Replace all producers by `entries`."""
        self.entries = entries
        firsts = (entry.txn_first_offset for entry in entries.values())
        # In the order of their beginnings, as appends keep it: the first key is the first unstable
        # offset.
        self._ongoing = dict.fromkeys(sorted(first for first in firsts if first >= 0))
        self._ended.clear()
        self._find_unstable()

    def _find_unstable(self) -> None:
        first = next(iter(self._ongoing), -1)  # transactions are in the order of their offsets
        if self._ended:
            ended = min(self._ended)
            first = ended if first < 0 else min(first, ended)
        self.first_unstable_offset = first

    def await_rejected(self, producer_id: int, epoch: int, sequence: int, code: ErrorCode) -> None:
        """Have a producer repeat a batch, rejected with `code`, before its next ones."""
        if producer_id < 0 or sequence < 0:
            return
        entry, beginnings = self.entries.get(producer_id), self.beginnings
        if entry is None:
            beginnings.await_rejected(producer_id, epoch, sequence, code)
        elif epoch >= entry.epoch:
            until_ms = beginnings.clock_ms() + AWAITED_MS
            entry.rejected = RejectedBatch(epoch, entry.next_sequence(epoch), code, until_ms)

    def duplicated(self, fields: HeaderFields) -> BatchMetadata | None:
        """Return the batch that a client's header repeats, if it is one of the last five."""
        producer_id, epoch = fields[PRODUCER_ID], fields[PRODUCER_EPOCH]
        first = fields[BASE_SEQUENCE]
        entry = self.entries.get(producer_id)
        if entry is None or epoch != entry.epoch:
            return None
        ends = first, -1 if first < 0 else first + fields[LAST_OFFSET_DELTA] & SEQUENCE_MAX
        for batch in entry.batches:
            if (batch.first_sequence, batch.last_sequence) == ends:
                return batch
        return None

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether this epoch of the producer has an open transaction."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, supports_epoch_bump: bool
    ) -> Verification | None:
        """Return the verification that the next append needs, or `None` if it needs none.

        None is needed within an open transaction. Raises `KafkaError` 47 for an older epoch.
        now_ms: milliseconds since the epoch (KIP-890).
        """
        entry = self.entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise _older_epoch(producer_id, epoch, entry.epoch)
        if self.is_in_transaction(producer_id, epoch):
            return None
        return self.verifications.start(
            producer_id, epoch, sequence, now_ms, supports_epoch_bump=supports_epoch_bump
        )

    def expecting(self, fields: HeaderFields) -> ProducerEntry | None:
        """Return the producer if this is its next batch, within its transaction if it has one.

        That is the usual case, which needs no further check. `None` leaves the decision to `admit`,
        as for all batches of a producer that is being verified.
        """
        entry = self.entries.get(fields[PRODUCER_ID])
        if (
            entry is not None
            and fields[PRODUCER_EPOCH] == entry.epoch
            and (batches := entry.batches)
            and fields[BASE_SEQUENCE] == batches[-1].last_sequence + 1 & SEQUENCE_MAX
            and (fields[ATTRIBUTES] & TRANSACTIONAL != 0) is (entry.txn_first_offset >= 0)
            and fields[PRODUCER_ID] not in self.verifications.held
        ):
            return entry
        return None

    def admit(
        self, fields: HeaderFields, origin: Origin, verification: Verification | None
    ) -> BatchMetadata | None:
        """Return the batch that a header duplicates, if it is one of the last five, else `None`.

        Raises `KafkaError` 47 for an older epoch, 45 for a gap, the code of a rejected batch for a
        batch that follows it, 5 for a gap before the first batch (see `beginnings`), 48 for a batch
        that would begin a transaction without verification or is outside its producer's open
        transaction, and `VerificationVoidedError` if its verification was voided.
        """
        producer_id, epoch = fields[PRODUCER_ID], fields[PRODUCER_EPOCH]
        first = fields[BASE_SEQUENCE]
        entry = self.entries.get(producer_id) or ProducerEntry()
        is_present = epoch == entry.epoch
        # Duplicates first: a retry of an older batch would otherwise look like a gap.
        if origin == "client" and (duplicate := self.duplicated(fields)) is not None:
            return duplicate
        # Before the sequence: a fenced producer must learn that it is fenced, and not retry for
        # ever because of a gap.
        if epoch < entry.epoch:
            raise _older_epoch(producer_id, epoch, entry.epoch)
        in_transaction = entry.txn_first_offset >= 0
        is_transactional = fields[ATTRIBUTES] & TRANSACTIONAL != 0
        # Markers have no sequence, and batches of a leader were checked when it appended them: a
        # follower whose producers have expired must accept them all the same.
        gap = self._gap_before(fields, entry) if origin == "client" else None
        # Before the transaction: the batch that has to come first decides about that.
        if gap is not None and gap.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            raise gap
        begins = is_transactional and not (in_transaction and is_present)
        if begins or producer_id in self.verifications.held:
            self.verifications.check(
                producer_id,
                first,
                verification,
                origin,
                begins=begins,
                is_known=bool(entry.batches),
            )
        if gap is not None:
            raise gap
        # A marker ends everything that the producer wrote since the transaction began, so this
        # batch would be aborted with it.
        if in_transaction and not is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} wrote outside of its open transaction",
            )
        return None

    def _gap_before(self, fields: HeaderFields, entry: ProducerEntry) -> KafkaError | None:
        producer_id, epoch = fields[PRODUCER_ID], fields[PRODUCER_EPOCH]
        sequence = fields[BASE_SEQUENCE]
        awaited = entry.next_sequence(epoch)
        if sequence == awaited:
            return None
        if entry.epoch == NO_EPOCH:
            code = self.beginnings.refusal(producer_id, epoch, sequence)
            if code is None:
                return None
            return KafkaError(
                code,
                f"producer {producer_id} begins at sequence {sequence}, and its batches before "
                "may still arrive; try again",
            )
        rejected = entry.rejected
        if (
            rejected is not None
            and (rejected.epoch, rejected.sequence) == (epoch, awaited)
            # An earlier batch is late, and no longer a known duplicate.
            and sequence - awaited & SEQUENCE_MAX < SEQUENCE_MAX >> 1
            and self.beginnings.clock_ms() < rejected.until_ms
        ):
            return KafkaError(
                rejected.code,
                f"producer {producer_id} sent sequence {sequence}, and its rejected batch with "
                f"sequence {awaited} comes first; try again",
            )
        last = entry.last_sequence if epoch == entry.epoch else -1
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} sent sequence {sequence} after {last}",
        )

    def check_marker(
        self, producer_id: int, epoch: int, marker: EndTransactionMarker, transaction_version: int
    ) -> None:
        """Raise `KafkaError` 47 for a marker of an older epoch, 52 for one of an older coordinator.

        With transaction version 2 the coordinator bumps the epoch before each marker. So a marker
        of the present epoch is late if a transaction is open. Before version 2 the number of the
        decision shows it. Both raise 47. Without an open transaction the marker repeats the last
        one, which need not be committed, and is written again (KIP-890, KAFKA-19999).
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        is_late = (
            epoch == entry.epoch
            and entry.txn_first_offset >= 0
            and (
                transaction_version >= _BUMPS_EPOCH
                or marker.repeats(entry.coordinator_epoch, entry.decision)
            )
        )
        if epoch < entry.epoch or is_late:
            raise _older_epoch(producer_id, epoch, entry.epoch)
        # A coordinator that has lost its partition without knowing it. Its decision may differ from
        # that of the new one, which has already written here.
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} for producer {producer_id} "
                f"is older than {entry.coordinator_epoch}",
            )

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Apply a batch that was appended at `base_offset` or was found in the log.

        A transactional batch opens a transaction if the producer has none (KIP-98).
        """
        entry = self.entries.get(header.producer_id)
        is_new = entry is None
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        # Batches of the older epoch can no longer be repeated, since the epoch has fenced them.
        elif entry.epoch != header.producer_epoch:
            entry.begin_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        entry.add(header.base_sequence, delta, base_offset + delta, header.max_timestamp)
        if header.attributes & TRANSACTIONAL:
            # A verification covers one begin of a transaction; a later one needs its own (KIP-890).
            self.verifications.void_below(header.producer_id, header.producer_epoch + 1)
            if entry.txn_first_offset < 0:
                entry.txn_first_offset = base_offset
                self._ongoing[base_offset] = None
                # A transaction that begins later cannot be the first one.
                if self.first_unstable_offset < 0:
                    self.first_unstable_offset = base_offset
        if is_new and self._on_new is not None:
            self._on_new()

    def ending(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        """Return the transaction that an abort marker of the producer at `offset` ends.

        Return `None` if the producer has no open transaction.
        """
        entry = self.entries.get(producer_id)
        if entry is None or entry.txn_first_offset < 0:
            return None
        first = entry.txn_first_offset
        # The last stable offset after this marker: where the oldest other transaction begins.
        # A search of the transaction index ends at the first entry whose stable offset lies beyond
        # the fetched range: no later entry can concern it.
        stable = next((other for other in self._ongoing if other != first), offset + 1)
        return AbortedTransaction(producer_id, first, offset, stable)

    def end_transaction(
        self,
        header: BatchHeader,
        marker: EndTransactionMarker,
        *,
        transaction_version: int = 0,
        uncommitted_at: int = -1,
    ) -> None:
        """Apply a marker, which may find no transaction to end.

        With the marker's offset in `uncommitted_at` the transaction stays unstable until
        `commit_markers` has passed that, like `unreplicatedTxns` of Kafka's `ProducerStateManager`.

        transaction_version: of the marker; only a leader knows it, and only a leader verifies.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        # A marker may carry the next epoch (KIP-890): from here on, late batches of the ended
        # transaction are fenced.
        is_new = entry.epoch != header.producer_epoch
        entry.begin_epoch(header.producer_epoch)
        entry.last_timestamp = header.max_timestamp
        if transaction_version >= _BUMPS_EPOCH:
            # The marker has the epoch of the next transaction, which may wait for its verification.
            self.verifications.void_below(header.producer_id, header.producer_epoch)
        # A repetition finds a verification of the producer's next transaction, or none: the first
        # marker of the decision has voided all earlier ones.
        elif is_new or not marker.repeats(entry.coordinator_epoch, entry.decision):
            self.verifications.void_below(header.producer_id, header.producer_epoch + 1)
        if marker.coordinator_epoch == entry.coordinator_epoch:
            entry.decision = max(entry.decision, marker.decision)
        else:
            entry.coordinator_epoch, entry.decision = marker.coordinator_epoch, marker.decision
        first = entry.txn_first_offset
        if first >= 0:
            self._ongoing.pop(first, None)
            entry.txn_first_offset = -1
            if uncommitted_at >= 0:
                # A power failure, or a leader that lacks it, may remove the marker. Read-committed
                # consumers must not have passed it then.
                self._ended[first] = uncommitted_at
            else:
                self._find_unstable()

    def commit_markers(self, end_offset: int) -> None:
        """Make markers before `end_offset` count: their transactions are no longer unstable."""
        if self._ended:
            ended = self._ended.items()
            self._ended = {first: marker for first, marker in ended if marker >= end_offset}
            self._find_unstable()

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers without an open transaction that are idle for `expiration_ms`.

        Return how many. Times are in milliseconds (`producer.id.expiration.ms`, KIP-854).
        """
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            # A producer with an open transaction stays however idle it is: without its entry, the
            # transaction would hold back the last stable offset for good.
            if entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= self.expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        self.verifications.remove_older(now_ms - self.expiration_ms)
        return len(expired)

    def forget_idle(self, count: int) -> int:
        """Forget up to `count` producers with the oldest batches; return how many.

        Producers that have or had a transaction here stay, and so does that of the newest batch. A
        producer that is forgotten may begin again at any sequence, as after its expiration.
        """
        held = self.verifications.held
        idle = (
            (entry.batches[-1].last_offset, producer_id)
            for producer_id, entry in self.entries.items()
            if entry.batches
            and entry.txn_first_offset < 0
            # A producer with a marker here is kept until it expires: without its entry a late
            # marker of an older coordinator would not be fenced.
            and entry.coordinator_epoch < 0
            and producer_id not in held
        )
        oldest = nsmallest(min(count, len(self.entries) - 1), idle)
        for _, producer_id in oldest:
            del self.entries[producer_id]
        return len(oldest)


def _older_epoch(producer_id: int, epoch: int, current: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {epoch} of producer {producer_id} is not above {current}",
    )
