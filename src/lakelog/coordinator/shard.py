"""What a coordinator's shard is: the state of one partition of an internal topic.

A handler decides from what it sees and returns a `Result`: the records that would make its decision
durable, and what to do when they are committed or when they are not. It changes nothing durable
itself. Only `replay` does, and it runs when the records are committed, so whatever a shard holds
as durable is in the log, a failed append needs no undoing, and replaying the log from its
start builds the same shard.

What is not durable (who waits for which rebalance, sessions, timers) a handler may change at once;
it is thrown away with the shard.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.deadlines import Deadlines

R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)


class Now(NamedTuple):
    """One reading of both clocks."""

    wall_ms: int
    """Milliseconds since the epoch, for what is written down."""
    tick_ms: int
    """Milliseconds of the monotonic clock, for deadlines: a clock set by hours ends no session."""


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction, as its coordinator has decided it."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int
    """The level of `transaction.version` that the client speaks."""


@dataclass(frozen=True, slots=True)
class Result(Generic[R]):
    """A decision: records to append as one, and what follows from their fate.

    Exactly one of `committed` and `failed` is called, once. Without anything to append that is
    `committed`, at once. Either may decide something further.
    """

    records: Sequence[R] = ()
    """With a marker there are none."""
    committed: Callable[[Now], Result[R] | None] | None = None
    failed: Callable[[Now, ErrorCode], Result[R] | None] | None = None
    producer: tuple[int, int] | None = None
    """Producer id and epoch whose transaction the records belong to: they count if it commits."""
    marker: TransactionMarker | None = None


class Shard(Protocol[R]):
    """The state of one partition. Nothing in it waits or does I/O."""

    @property
    def deadlines(self) -> Deadlines[Any]:
        """When `advance` has something to do, on the monotonic clock."""
        ...

    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """Key and value as they are written."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """None for a type of record that this version does not know; `WireError` if malformed."""
        ...

    def replay(self, record: R) -> None:
        """Applies a committed record to the durable state; the same for loading and for living."""
        ...

    def replay_pending(self, record: R, producer_id: int) -> None:
        """Takes in a record of a producer's transaction that may still be aborted."""
        ...

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        """Applies what is pending of a producer, or forgets it."""
        ...

    def loaded(self, now: Now) -> list[Result[R]]:
        """The log has been replayed to its end: begin to serve."""
        ...

    def unloaded(self, code: ErrorCode) -> None:
        """Answers everything that waits with `code`; the shard is not used afterwards."""
        ...

    def advance(self, now: Now) -> list[Result[R]]:
        """Does what is due."""
        ...


class Reply(Protocol[T_co]):
    """A response that may come later; an `asyncio.Future` is one. Cancelling it is harmless."""

    def __await__(self) -> Any: ...

    def done(self) -> bool: ...

    def result(self) -> T_co: ...

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None: ...


class PartitionLog(Protocol):
    """How a coordinator reaches the partitions of its topic; local now, remote with the cluster."""

    def append(self, partition: int, batch: bytearray) -> Awaitable[int]:
        """Appends one batch and returns its base offset once it is committed.

        Raises `KafkaError`, or `OSError` if the log directory failed. Unless the code is one of
        `NOT_APPENDED`, or the error an `OutOfRoomError`, the batch may be in the log all the same;
        but then it is there for a `read` that begins after the failure was reported: it cannot
        turn up later.
        """
        ...

    def append_marker(self, partition: int, marker: TransactionMarker) -> Awaitable[int]:
        """Appends the end of a transaction; otherwise as `append`."""
        ...

    def start_offset(self, partition: int) -> Awaitable[int]:
        """The first offset there is."""
        ...

    def read(self, partition: int, offset: int) -> Awaitable[bytes | bytearray | memoryview]:
        """Whole stored batches, of which the first contains or follows `offset`.

        Empty only at the end of the log, after everything in it has been committed.
        """
        ...


PRODUCER_REFUSED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""Codes of an append on behalf of a producer that is not, or no longer, entitled to it."""

NOT_APPENDED = PRODUCER_REFUSED | frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Codes of an append that say: definitely not done."""

_COORDINATOR_CODES = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


def coordinator_code(code: ErrorCode) -> ErrorCode:
    """What a client is told when an append failed with `code`.

    It sees a coordinator, not a partition, so it is told to look for one or to try again. An
    append that was refused for what it contains is nothing a client can help.
    """
    told = _COORDINATOR_CODES.get(code)
    if told is not None:
        return told
    if code in PRODUCER_REFUSED:
        return code
    return ErrorCode.UNKNOWN_SERVER_ERROR if code in NOT_APPENDED else code
