"""A coordinator's shard: the state of one partition of an internal topic.

A request reads the state and returns a `Result`: the records that make its decision durable, its
reply, and effects on soft state that follow the records. It does not change durable state. Only
`replay` does, and it runs when the records are committed. So all durable state of a shard is in the
log, a failed append needs no undo, and replaying the log from its start builds the same shard.

A decision may change soft state (members that wait for a rebalance, sessions, timers) at once. Soft
state is lost with the shard.

Counts over all loaded shards of a coordinator are kept as shards change instead of being summed. A
shard counts while it loads its log, too, but only what loaded shards count is in the total.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.deadlines import Deadlines
from lakelog.records.control import NO_DECISION

R = TypeVar("R")
S_contra = TypeVar("S_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


class Now(NamedTuple):
    """A reading of both clocks."""

    wall_ms: int
    """Milliseconds since the epoch, for times in records."""
    tick_ms: int
    """Milliseconds of the monotonic clock, for deadlines: setting the wall clock ends no
    session."""


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction, as decided by the transaction coordinator."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int
    """Level of the feature `transaction.version` that the client uses."""
    decision: int = NO_DECISION
    """Number of the decision; see `lakelog.coordinator.transaction.endings`."""


class ReplyTime(Enum):
    """The time of a reply that is not part of its decision."""

    LATER = auto()
    """The shard has kept the request and answers it, for example when its group is complete."""


LATER = ReplyTime.LATER


class Effect:
    """A change of soft state that follows the records of a decision, and its further decisions.

    The host calls exactly one of the methods, once, after the replay of the records.
    """

    __slots__ = ()

    def committed(self, now: Now, result: Result[Any]) -> Sequence[Result[Any]] | None:
        """Follow the committed records, after the reply; return further decisions, if any."""
        return None

    def failed(
        self, now: Now, result: Result[Any], code: ErrorCode
    ) -> Sequence[Result[Any]] | None:
        """Follow a failed append, before the request is refused with `code`; as `committed`."""
        return None


def _nothing(now: Now, code: ErrorCode) -> None:
    """Change nothing, as the failed records have not."""


@dataclass(frozen=True, slots=True)
class Then(Effect):
    """Calls one function once the records are committed, another one if their append failed."""

    on_commit: Callable[[Now], Sequence[Result[Any]] | None]
    on_failure: Callable[[Now, ErrorCode], Sequence[Result[Any]] | None] = _nothing

    def committed(self, now: Now, result: Result[Any]) -> Sequence[Result[Any]] | None:
        return self.on_commit(now)

    def failed(
        self, now: Now, result: Result[Any], code: ErrorCode
    ) -> Sequence[Result[Any]] | None:
        return self.on_failure(now, code)


@dataclass(frozen=True, slots=True)
class Result(Generic[R]):
    """A decision: records to append together, the reply to its request, and effects.

    The host meets the `need`, if there is one, and has the request decided again. Otherwise it
    appends the records, replays them, sends the reply, and runs the effects in their order; without
    records at once.
    """

    records: Sequence[R] = ()
    """Empty if there is a marker."""
    reply: Any = LATER
    """For `Request.answer`; also `LATER` for a decision without a request."""
    effects: tuple[Effect, ...] = ()
    request: Request[Any] | None = None
    """A request that has waited in the shard, and gets this reply."""
    producer: tuple[int, int] | None = None
    """Producer id and epoch of the transaction that the records are part of."""
    marker: TransactionMarker | None = None
    need: Any = None
    """A need of the request, such as a producer id, without which nothing is decided."""


class Request(Protocol[S_contra]):
    """A request to the shard of a key: a value that is decided, perhaps repeatedly, and answered.

    One of `answer` and `refuse` is called, once: by the host, or by the shard if the reply of the
    decision is `LATER`.
    """

    @property
    def key(self) -> str:
        """The key whose shard decides."""
        ...

    @property
    def allows_empty_key(self) -> bool:
        """Whether an empty key is valid."""
        ...

    def decide(self, shard: S_contra, now: Now) -> Result[Any]:
        """Return the decision; called again after a need was met. Raises `KafkaError`."""
        ...

    def answer(self, reply: Any) -> None:
        """Send the reply of the decision."""
        ...

    def refuse(self, code: ErrorCode) -> None:
        """Reply with an error code for the client."""
        ...


class SharedCount:
    """The total over the loaded shards of one coordinator."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class ShardCount:
    """The part of one shard in a shared count."""

    __slots__ = ("_is_open", "_shared", "value")

    def __init__(self, shared: SharedCount) -> None:
        self._shared = shared
        self._is_open = False
        self.value = 0

    def add(self, more: int) -> None:
        """Raise the count by `more`, or lower it if that is negative."""
        self.value += more
        if self._is_open:
            self._shared.total += more

    def open(self) -> None:
        """Include the shard in the total: its log has been replayed."""
        assert not self._is_open
        assert self.value >= 0, "the log deleted more than it had"
        self._is_open = True
        self._shared.total += self.value

    def close(self) -> None:
        """Take the shard out of the total; it may still change, which then counts nowhere."""
        if self._is_open:
            self._is_open = False
            self._shared.total -= self.value
            assert self._shared.total >= 0


class Shard(Protocol[R]):
    """The state of one partition. A shard neither waits nor does I/O."""

    @property
    def deadlines(self) -> Deadlines[Any]:
        """Times at which the host has to call `on_due`, with their keys."""
        ...

    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """Return key and value in the format of the log."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """Return the record, or None if this version does not know its type.

        Raises `WireError` if the record is malformed.
        """
        ...

    def replay(self, record: R) -> None:
        """Apply a committed record to the durable state, while loading and afterwards."""
        ...

    def replay_pending(self, record: R, producer_id: int) -> None:
        """Keep a record of a producer's open transaction."""
        ...

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        """Apply the pending records of a producer, or drop them."""
        ...

    def loaded(self, now: Now) -> list[Result[R]]:
        """Begin to serve: the log has been replayed to its end."""
        ...

    def unloaded(self, code: ErrorCode) -> None:
        """Answer all waiting requests with `code`; the shard is not used afterwards."""
        ...

    def on_due(self, now: Now, key: Any) -> Sequence[Result[R]]:
        """Return the decisions for a deadline that has passed, and has been removed."""
        ...


class Reply(Protocol[T_co]):
    """A response that may come later, such as an `asyncio.Future`. A caller may cancel it."""

    def __await__(self) -> Generator[Any, None, T_co]: ...

    def done(self) -> bool: ...

    def result(self) -> T_co: ...

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None: ...


class PartitionLog(Protocol):
    """A shard's access to its partition, in the leader epoch in which it was opened.

    In any other leader epoch each method raises `KafkaError` (NOT_LEADER_OR_FOLLOWER).
    """

    def append(self, batch: bytearray) -> Awaitable[int]:
        """Append one batch and return its base offset once it is committed.

        Raises `KafkaError`, or `OSError` if the log directory failed. The batch is not in the log
        if the code is in `NOT_APPENDED` or the error is an `OutOfCapacityError`. After any other
        error it may be in the log. If so, a `read` that begins after the error returns it: the
        batch cannot appear later.
        """
        ...

    def append_marker(self, marker: TransactionMarker) -> Awaitable[int]:
        """Append the end of a transaction; otherwise as `append`."""
        ...

    def start_offset(self) -> Awaitable[int]:
        """Wait until everything in the log is committed; return the log start offset.

        A new leader's high watermark may be below records that an earlier leader has committed.
        """
        ...

    def read(self, offset: int) -> Awaitable[bytes | bytearray | memoryview]:
        """Return whole batches, of which the first contains or follows `offset`.

        Returns no bytes only at the end of the log.
        """
        ...


class PartitionLogs(Protocol):
    """A coordinator's access to the partitions of its topic."""

    def open(self, partition: int, leader_epoch: int) -> PartitionLog:
        """Return the log of a partition.

        Raises `KafkaError` unless this broker leads the partition in `leader_epoch`.
        """
        ...

    def led(self) -> Sequence[int]:
        """Return the partitions that this broker leads now."""
        ...

    def is_current(self) -> bool:
        """Return whether no other broker can lead one of them without this broker's knowledge."""
        ...


PRODUCER_REFUSED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""Codes of an append that fails because its producer is fenced or has no open transaction."""

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
"""Codes that prove that the append was not done."""

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
    """Return the code for a client when an append failed with `code`.

    The client knows a coordinator, not a partition, so the code makes it find a coordinator or
    retry. If the log rejected the content of a coordinator's batch, the client gets
    UNKNOWN_SERVER_ERROR: it cannot correct the batch.
    """
    client_code = _COORDINATOR_CODES.get(code)
    if client_code is not None:
        return client_code
    if code in PRODUCER_REFUSED:
        return code
    return ErrorCode.UNKNOWN_SERVER_ERROR if code in NOT_APPENDED else code
