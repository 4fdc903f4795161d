"""What is known of a transactional id: its producer, and where its newest transaction stands.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                     -> PrepareAbort  -> CompleteAbort

A Prepare state is the decision: it is durable, and the markers that follow from it may be written
any number of times. Complete says that every partition has its marker. Dead and PrepareEpochFence
are Kafka's names for moments that are not written down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
EPOCH_MAX = 32_767
"""Never given to a client, so that a client with the highest it can have can still be fenced."""
EPOCH_LAST = EPOCH_MAX - 1

TopicPartition = tuple[str, int]


class TransactionState(IntEnum):
    """By their numbers in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    is_ending: bool
    """Whether it is a Prepare state."""
    has_ended: bool
    """Whether it is a Complete state."""

    def __init__(self, number: int) -> None:
        self.is_ending = number in (2, 3)
        self.has_ended = number in (4, 5)

    @property
    def label(self) -> str:
        """As in DescribeTransactions: `PrepareCommit`."""
        return self.name.title().replace("_", "")


_S = TransactionState
NEXT_STATES: dict[TransactionState | None, set[TransactionState | None]] = {
    None: {_S.EMPTY},
    _S.EMPTY: {_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, None},
    _S.ONGOING: {_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT},
    _S.PREPARE_COMMIT: {_S.COMPLETE_COMMIT},
    _S.PREPARE_ABORT: {_S.PREPARE_ABORT, _S.COMPLETE_ABORT},
    _S.COMPLETE_COMMIT: {_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, None},
    _S.COMPLETE_ABORT: {_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, None},
}
"""States that may follow each state; None is an unknown transactional id. A log of another broker
may have the other states; whatever follows them is accepted."""


class TransactionVersion(IntEnum):
    """How a client speaks; the levels of the feature `transaction.version`."""

    CLASSIC = 0
    FLEXIBLE = 1
    BUMPING = 2
    """The epoch rises with every transaction (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transactional id. Times are milliseconds since the epoch, -1 for none."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    last_update_ms: int
    client_version: TransactionVersion = TransactionVersion.CLASSIC
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change; the same unless that change replaced it."""
    next_producer_id: int = NO_PRODUCER_ID
    """Replaces the producer id, whose epochs are used up, when the transaction completes."""
    last_epoch: int = field(default=NO_EPOCH, compare=False)
    """The epoch a client may still name when it repeats the request that raised it. Kafka's format
    has no place for it: after a restart it is what can be told from the rest."""

    @property
    def is_exhausted(self) -> bool:
        """Whether this producer id has no further epoch for a client."""
        return self.producer_epoch >= EPOCH_LAST


def last_epoch_of(epoch: int, state: TransactionState, version: TransactionVersion) -> int:
    """With KIP-890 the end of a transaction has raised the epoch by one; else nothing is known.

    Nor is it at the highest epoch: a producer that was fenced there holds the one before.
    """
    ends = state.is_ending or state.has_ended
    if version is not TransactionVersion.BUMPING or not ends or epoch == EPOCH_MAX:
        return NO_EPOCH
    return epoch - 1 if epoch > 0 else EPOCH_LAST
