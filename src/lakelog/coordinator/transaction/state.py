"""The state of a transactional id: its producer, and the state of its newest transaction.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                     -> PrepareAbort  -> CompleteAbort

A Prepare state is the durable decision; its markers may be written any number of times. In a
Complete state every partition has its marker. Dead and PrepareEpochFence are states of Kafka that
are never written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.protocol.commit_sets import RefusedCommitSet, SinkState
from lakelog.protocol.transactions import EndTxnResponse, InitProducerIdResponse

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
EPOCH_MAX = 32_767
"""Never given to a client, so that a client with the epoch before it can be fenced."""
EPOCH_LAST = EPOCH_MAX - 1

TopicPartition = tuple[str, int]


class TransactionState(IntEnum):
    """States by their numbers in the log."""

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
        """The name in DescribeTransactions, such as `PrepareCommit`."""
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
"""States that may follow each state; None is an unknown transactional id. A log that another broker
wrote may have further states, which any state may follow."""


class TransactionVersion(IntEnum):
    """The levels of the feature `transaction.version`; each client uses one."""

    CLASSIC = 0
    FLEXIBLE = 1
    BUMPING = 2
    """Each transaction has its own epoch (KIP-890)."""


NO_BATCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """The control record of a sink: its transactional id has no transaction of its own.

    next_batch: `NO_BATCH` until the first commit, which may have any number.
    expires: whether the sink is forgotten like an unused transactional id.
    last_set: digest of the commit set that advanced `next_batch`.
    former_runs: digests of the runs that were fenced since the last commit, the newest last.
    earlier_runs: the same of the time between the last two commits.
    content: the identity of the rows of the last batch, which only the client reads.
    """

    query_id: str
    run_id: str
    next_batch: int = NO_BATCH
    expires: bool = False
    last_set: bytes = b""
    former_runs: bytes = b""
    earlier_runs: bytes = b""
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Child:
    """A child of a sink, named by the producer id and epoch that the sink had."""

    parent_id: int
    parent_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The state of one transactional id. Times are milliseconds since the epoch, -1 for none."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    last_update_ms: int
    client_version: TransactionVersion = TransactionVersion.CLASSIC
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last step; differs if that step replaced the producer id."""
    next_producer_id: int = NO_PRODUCER_ID
    """Replaces the producer id, whose epochs are exhausted, when the transaction completes."""
    last_epoch: int = field(default=NO_EPOCH, compare=False)
    """The epoch that a client may send when it repeats the request that raised the epoch. Kafka's
    format has no field for it; a restart derives it from the rest (`last_epoch_of`)."""
    part: Sink | Child | None = None
    """Its part in commit sets; None for an ordinary producer."""


def last_epoch_of(epoch: int, state: TransactionState, version: TransactionVersion) -> int:
    """Return the epoch before the end of the last transaction, `NO_EPOCH` if it is unknown.

    With KIP-890 the end of a transaction raises the epoch by one. At the highest epoch the previous
    one is unknown: a fenced producer holds the epoch before.
    """
    ends = state.is_ending or state.has_ended
    if version is not TransactionVersion.BUMPING or not ends or epoch == EPOCH_MAX:
        return NO_EPOCH
    return epoch - 1 if epoch > 0 else EPOCH_LAST


class OpenTransaction(NamedTuple):
    """An open transaction in a partition's log.

    The coordinator epoch is -1 if the log has no marker of the producer.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return self.topic, self.partition


class SinkReply(NamedTuple):
    """An error code, and without an error the identity of a sink or child."""

    code: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1
    sink: SinkState | None = None
    refused: RefusedCommitSet | None = None

    def initialised(self) -> InitProducerIdResponse:
        """Return the response to InitProducerId."""
        return InitProducerIdResponse(
            error_code=self.code,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            sink=self.sink,
            refused=self.refused,
        )

    def ended(self) -> EndTxnResponse:
        """Return the response to EndTxn. A sink keeps its producer id and epoch."""
        return EndTxnResponse(
            error_code=self.code,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            sink=self.sink,
            refused=self.refused,
        )


def sink_state(part: Sink) -> SinkState:
    """Return the control record as clients see it."""
    return SinkState(
        query_id=part.query_id,
        run_id=part.run_id,
        next_batch=part.next_batch,
        expires=part.expires,
        content=part.content,
    )


def sink_reply(current: Transaction) -> SinkReply:
    """Return the reply with the identity and the control record of a sink."""
    assert isinstance(current.part, Sink)
    identity = current.producer_id, current.producer_epoch
    return SinkReply(ErrorCode.NONE, *identity, sink_state(current.part))
