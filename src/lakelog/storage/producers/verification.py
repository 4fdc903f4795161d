"""Which producers are being verified before they may begin a transaction in a log (KIP-890).

Before the first batch of a transaction is written, the transaction's coordinator is asked whether
it knows of the partition. Meanwhile a marker may end that very transaction; the batch would then
begin one that nobody ever ends. So a verification is taken before the question and handed in with
the batch, and whatever is written for the producer, marker or transactional batch, makes it void.

It also remembers the lowest sequence that wanted to begin, so that a later batch cannot overtake
one that has to be tried again. Nothing of this outlives the process.

Source: `VerificationStateEntry` and `VerificationGuard` of
`org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.storage.validation.batches import Origin


class Verification:
    """One producer being verified; the object itself is the guard."""

    __slots__ = ("epoch", "lowest_sequence", "started_ms", "supports_epoch_bump")

    def __init__(self, epoch: int, sequence: int, now_ms: int, supports_epoch_bump: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.started_ms = now_ms
        self.supports_epoch_bump = supports_epoch_bump

    def take_in(self, epoch: int, sequence: int) -> None:
        """Another batch wants to begin: a lower sequence counts, and a newer epoch anew."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


class Verifications:
    """Those of one log, at most one per producer."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: dict[int, Verification] = {}
        """By producer id."""

    def __len__(self) -> int:
        return len(self.held)

    def start(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, supports_epoch_bump: bool
    ) -> Verification:
        """The producer's verification, which batches that wait together share."""
        found = self.held.get(producer_id)
        if found is None:
            found = Verification(epoch, sequence, now_ms, supports_epoch_bump)
            self.held[producer_id] = found
        found.take_in(epoch, sequence)
        return found

    def check(self, producer_id: int, verification: Verification | None, origin: Origin) -> None:
        """Raises `KafkaError` 48 unless `verification` is the one that holds now.

        A coordinator need not hand it in; that one holds suffices.
        """
        held = self.held.get(producer_id)
        if held is None or not (
            verification is held or (verification is None and origin == "coordinator")
        ):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the batch is of no transaction of producer {producer_id} that is under way",
            )

    def check_sequence(self, producer_id: int, sequence: int, *, is_known: bool) -> None:
        """Raises `KafkaError` 45 where another batch must come first.

        `is_known` tells whether any batch of the producer's present epoch is known: with
        transaction version 2 each transaction begins an epoch, and so at 0.
        """
        found = self.held.get(producer_id)
        if found is None:
            return
        lowest = found.lowest_sequence
        if found.supports_epoch_bump and not is_known:
            lowest = 0
        if sequence > lowest:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {sequence} where {lowest} is to come first",
            )

    def clear(self, producer_id: int) -> None:
        self.held.pop(producer_id, None)

    def remove_older(self, started_ms: int) -> None:
        """Forgets those that have led to nothing since `started_ms`."""
        old = [key for key, entry in self.held.items() if entry.started_ms <= started_ms]
        for key in old:
            del self.held[key]
