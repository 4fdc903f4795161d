"""Where producers that a log does not know may begin, and when one may begin a transaction.

Usually at any sequence: the entry of a producer may have expired without its knowledge (KIP-360).
But the first batches of a producer may have been lost or rejected while its next ones are on their
way. Accepting those would leave no place for the first: Java's producer repeats them until its
delivery timeout, as of a broker of Apache Kafka. So for a minute

- the unknown producers of a new leader begin at sequence 0: requests to the last leader may have
  failed;
- a producer whose batch was rejected begins with that batch, or with an earlier one. Further
  rejections delay this producer alone. Until then its batches get the error of the rejected one.

Verification of producers before they may begin a transaction in a log (KIP-890).

Before the first batch of a transaction is written, the broker asks the transaction's coordinator
whether the partition belongs to the transaction. Meanwhile a marker may end that transaction. The
batch would then begin a transaction that no coordinator ever ends. So the broker starts a
verification before it asks, and passes it with the batch. A marker or a transactional batch that is
written for the producer meanwhile voids the verification.

With transaction version 2 each transaction has an epoch of its own, and a marker has the epoch of
the next one. The marker then voids verifications of lower epochs only: the producer may begin its
next transaction before the marker of the last one is written here. The broker verifies a batch
whose verification was voided a few times more; then the producer has to repeat the batch.

A verification also keeps the lowest sequence that was to begin the transaction, so that a later
batch cannot overtake a batch that has to be retried. Verifications are not stored.

Source: `VerificationStateEntry` and `VerificationGuard` of
`org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.storage.validation import Origin

AWAITED_MS = 60_000
"""Twice the request timeout of most clients: until then the batches of a request that was lost
have been sent again."""
_REJECTED_MAX = 100
"""Rejected producers, of which the newest are kept: each client may invent any number."""


class RejectedBatch(NamedTuple):
    """A batch that its producer is expected to repeat, as the log's next one of this producer.

    `until_ms` is a time of the clock of `Beginnings`.
    """

    epoch: int
    sequence: int
    code: ErrorCode
    until_ms: int


class Beginnings:
    """The first sequences that one log awaits; `clock_ms` is a monotonic clock in milliseconds."""

    __slots__ = ("_all_until_ms", "_rejected", "clock_ms")

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self.clock_ms = clock_ms
        self._all_until_ms: int | None = None
        self._rejected: dict[int, RejectedBatch] = {}

    def await_all(self) -> None:
        """Make all unknown producers begin at sequence 0 for `AWAITED_MS`."""
        self._all_until_ms = self.clock_ms() + AWAITED_MS
        self._rejected.clear()

    def await_rejected(self, producer_id: int, epoch: int, sequence: int, code: ErrorCode) -> None:
        """Make an unknown producer begin with this rejected batch, or an earlier rejected one."""
        now_ms = self.clock_ms()
        before = self._rejected.pop(producer_id, None)
        if before is not None and before.epoch == epoch and now_ms < before.until_ms:
            sequence = min(sequence, before.sequence)
        elif len(self._rejected) == _REJECTED_MAX:
            del self._rejected[next(iter(self._rejected))]
        self._rejected[producer_id] = RejectedBatch(epoch, sequence, code, now_ms + AWAITED_MS)

    def refusal(self, producer_id: int, epoch: int, sequence: int) -> ErrorCode | None:
        """Return the retriable code for an unknown producer that may not begin at a sequence.

        None if it may. The sequence is not 0. LEADER_NOT_AVAILABLE stands for batches that a former
        leader may have lost.
        """
        if self._all_until_ms is not None:
            if self.clock_ms() < self._all_until_ms:
                return ErrorCode.LEADER_NOT_AVAILABLE
            self._all_until_ms = None
        rejected = self._rejected.pop(producer_id, None)
        if rejected is None or rejected.epoch != epoch:
            return None
        if sequence <= rejected.sequence or self.clock_ms() >= rejected.until_ms:
            return None
        self._rejected[producer_id] = rejected
        return rejected.code


class VerificationVoidedError(KafkaError):
    """A verification was voided before its batch was appended; NOT_ENOUGH_REPLICAS.

    A new verification may show that the producer's present transaction includes the partition.
    Every client retries the code.
    """

    def __init__(self, producer_id: int) -> None:
        super().__init__(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the transaction of producer {producer_id} has to be verified again",
        )


class Verification:
    """One producer being verified; the object itself is the guard."""

    __slots__ = ("epoch", "lowest_sequence", "started_ms", "supports_epoch_bump")

    def __init__(self, epoch: int, sequence: int, now_ms: int, supports_epoch_bump: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.started_ms = now_ms
        self.supports_epoch_bump = supports_epoch_bump

    def take_in(self, epoch: int, sequence: int) -> None:
        """Note another batch that would begin the transaction; the lowest sequence counts."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


class Verifications:
    """The verifications of one log, at most one per producer."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: dict[int, Verification] = {}
        """By producer id."""

    def __len__(self) -> int:
        return len(self.held)

    def start(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, supports_epoch_bump: bool
    ) -> Verification:
        """Return the producer's verification, which batches that wait together share."""
        verification = self.held.get(producer_id)
        if verification is None:
            verification = Verification(epoch, sequence, now_ms, supports_epoch_bump)
            self.held[producer_id] = verification
        # Retries of several batches may arrive in another order than they were sent; the lowest
        # sequence has to be appended first.
        verification.take_in(epoch, sequence)
        return verification

    def check(
        self,
        producer_id: int,
        sequence: int,
        verification: Verification | None,
        origin: Origin,
        *,
        begins: bool,
        is_known: bool,
    ) -> None:
        """Check a batch of a producer that is being verified, or that begins a transaction.

        A coordinator need not pass the verification; a valid one must exist. With transaction
        version 2 each transaction begins a new epoch, and therefore at sequence 0.

        Args:
            begins: whether the batch begins a transaction here.
            is_known: whether any batch of the producer's present epoch is known.

        Raises `KafkaError` 48 for a batch that `begins` and was never verified, and
        `VerificationVoidedError` if its verification was voided. Raises 45 if another batch of a
        client must come first.
        """
        held = self.held.get(producer_id)
        if begins:
            if verification is None and origin == "client":
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"the batch belongs to no ongoing transaction of producer {producer_id}",
                )
            if held is None or verification not in (held, None):
                raise VerificationVoidedError(producer_id)
        if held is None or origin != "client":
            return
        lowest = held.lowest_sequence
        # A new epoch begins at sequence 0, even if the batch with that sequence has not arrived
        # yet.
        if held.supports_epoch_bump and not is_known:
            lowest = 0
        if sequence > lowest:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {sequence} where {lowest} must come first",
            )

    def void_below(self, producer_id: int, epoch: int) -> None:
        """Void the producer's verification if it is of an epoch below `epoch`."""
        held = self.held.get(producer_id)
        if held is not None and held.epoch < epoch:
            del self.held[producer_id]

    def void(self) -> None:
        """Void all verifications: they were started in an earlier leader epoch (KIP-890)."""
        self.held.clear()

    def remove_older(self, started_ms: int) -> None:
        """Forget verifications that began at or before `started_ms`, wall clock in ms."""
        old = [key for key, entry in self.held.items() if entry.started_ms <= started_ms]
        for key in old:
            del self.held[key]
