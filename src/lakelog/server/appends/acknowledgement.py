"""Waits until appended records are committed: replicated, and with `durability=fsync` durable.

All waiting appends of a partition share its next flush. Records appended during a flush become
durable by the next one. Deletions of records are waited for in the same way (KIP-107): a follower
applies the leader's log start offset from a response, and states it in its next fetch.

A wait belongs to the leader epoch of its append. When the epoch ends, the wait fails: the next
leader may have other records below the same offset, and their commit must not acknowledge this
append.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple, Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from lakelog.records.batch import TRANSACTIONAL
from lakelog.records.compression import Codec
from lakelog.replica.partition import Partition
from lakelog.replica.purgatory import Parked, Purgatory
from lakelog.replica.role import NotLeaderError, current_leader
from lakelog.runtime.api import Buffer, Clock, Tasks
from lakelog.server.appends.transaction_verification import ProduceCheck
from lakelog.server.requests.context import Context
from lakelog.server.topics.topics import INTERNAL_TOPICS
from lakelog.storage.validation import RecordsRefusedError


class Appended(NamedTuple):
    """An append in `leader_epoch` that waits until all offsets before `end_offset` are committed.

    `end_offset` is exclusive.
    """

    partition: Partition
    end_offset: int
    leader_epoch: int
    by_leader: bool = False
    """Whether the leader's own write completes the append (`acks=1`), not its commit."""

    @property
    def commit_offset(self) -> int | None:
        """See `Change`."""
        return None if self.by_leader else self.end_offset

    @property
    def is_complete(self) -> bool:
        """Whether the append is committed, or will not be by this leader."""
        partition = self.partition
        return (
            self._is_reached or not partition.serves or partition.leader_epoch != self.leader_epoch
        )

    @property
    def _is_reached(self) -> bool:
        watermark = self.partition.watermark
        end = watermark.written if self.by_leader else watermark.offset
        return end >= self.end_offset

    def check(self) -> None:
        """Raise `KafkaError` unless the append is committed.

        The error is that of an offline partition, `NotLeaderError` after a change of the leader
        epoch, or REQUEST_TIMED_OUT.
        """
        partition = self.partition
        if partition.leader_epoch != self.leader_epoch:
            raise NotLeaderError(partition.role.leader_id, partition.leader_epoch)
        if not self._is_reached:
            partition.check_leader()
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "the batch was written, but not committed in time"
            )


class Change(Protocol):
    """A change that its leader has carried out, and that followers still have to."""

    @property
    def partition(self) -> Partition: ...

    @property
    def commit_offset(self) -> int | None:
        """The high watermark that completes it, None if something else does."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether they have, or will not under this leader."""
        ...


class Awaited(Change, Protocol):
    """A change whose failure is known once it is complete."""

    def check(self) -> None:
        """Raise `KafkaError` if the change has failed, or is not carried out in time."""
        ...


class Acknowledgement:
    """A `Wait` for several changes, such as appends.

    Args:
        completed: called once all changes are complete, or at the deadline.
        failed: called with an exception of `completed`, so that other waits are not affected.
    """

    __slots__ = ("_changes", "_completed", "_failed")

    def __init__(
        self,
        changes: Sequence[Change],
        completed: Callable[[], object],
        failed: Callable[[Exception], object],
    ) -> None:
        self._changes = changes
        self._completed = completed
        self._failed = failed

    def park(self, purgatory: Purgatory, deadline: float) -> Parked:
        """Wait until all changes are complete, or until `deadline` (monotonic clock, seconds)."""
        if len(self._changes) == 1:
            (change,) = self._changes
            if change.commit_offset is not None:
                key = change.partition.key
                return purgatory.park_by_offset(self, key, change.commit_offset, deadline)
        keys = dict.fromkeys(change.partition.key for change in self._changes)
        return purgatory.park(self, keys, deadline)

    def try_complete(self) -> bool:
        """Call `completed` if all changes are complete; return whether they are."""
        if not all(one.is_complete for one in self._changes):
            return False
        self._completed()
        return True

    def expire(self) -> None:
        """Call `completed`; `Appended.check` then raises for appends that are not committed."""
        self._completed()

    def fail(self, error: Exception) -> None:
        """Pass `error` to `failed`."""
        self._failed(error)


def reply_when_settled(
    context: Context,
    changes: Sequence[Change],
    reply: Callable[[], object],
    purgatory: Purgatory,
    deadline: float,
    abandoned: Callable[[], object] = lambda: None,
) -> None:
    """Call `reply` once all changes are complete, or at `deadline` (monotonic clock, seconds).

    reply: completes the reply of `context`; its exception ends the connection.
    abandoned: called instead if the connection closes before.
    """
    wait = Acknowledgement(changes, reply, context.fail)
    # A change may have been settled while its request was still handled: no event follows.
    if wait.try_complete():
        return
    parked = wait.park(purgatory, deadline)

    def abandon() -> None:
        purgatory.cancel(parked)
        abandoned()

    context.on_abandon = abandon


async def committed(
    appended: Awaited, purgatory: Purgatory, tasks: Tasks, deadline: float = math.inf
) -> None:
    """Wait until the append is complete, or until `deadline` (monotonic clock, seconds).

    Raises `KafkaError` as its `check`.
    """
    if not appended.is_complete:
        done: asyncio.Future[None] = tasks.future()
        wait = Acknowledgement([appended], lambda: _wake(done), done.set_exception)
        parked = wait.park(purgatory, deadline)
        try:
            await done
        finally:  # a cancelled task must not leave its wait behind
            purgatory.cancel(parked)
    appended.check()


def _wake(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


ACKS_ALL = -1
_ZSTD_SINCE = 7
_ATTRIBUTES_LOW_BYTE = 22
_CODEC_MASK = 7
_NO_ID = "a transactional batch in a request without a transactional id"


def check_entry(
    partition: Partition, batch: Buffer | None, version: int, check: ProduceCheck | None
) -> None:
    """Raise `KafkaError` for a batch that this request may not append to this partition.

    `check` is that of the request's transaction; without one the batch must not be transactional.
    The codes are INVALID_RECORD without a batch, UNSUPPORTED_COMPRESSION_TYPE for zstd before
    version 7 (KIP-110), INVALID_TOPIC_EXCEPTION for an internal topic, and
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    if batch is None or len(batch) <= _ATTRIBUTES_LOW_BYTE:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "the request has no record batch for this partition"
        )
    attributes = batch[_ATTRIBUTES_LOW_BYTE]
    if version < _ZSTD_SINCE and attributes & _CODEC_MASK == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer"
        )
    if partition.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is internal")
    if check is None and attributes & TRANSACTIONAL:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _NO_ID)


def rejected_result(index: int, error: KafkaError) -> PartitionProduceResponse:
    """Return the result of a batch that was not appended, with rejected records (KIP-467)."""
    records = error.errors if isinstance(error, RecordsRefusedError) else ()
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=text)
            for batch_index, text in records
        ],
        error_message=error.message or None,
        current_leader=current_leader(error),
    )


_ROUND_S = 1.0
"""Longest time after which a follower that has died meanwhile is no longer waited for."""


class Deletion(NamedTuple):
    """Records below `offset` that the leader has deleted in `leader_epoch`.

    live: returns the node ids of the live brokers.
    """

    partition: Partition
    offset: int
    leader_epoch: int
    live: Callable[[], Container[int]]

    @property
    def commit_offset(self) -> int | None:
        """None: the high watermark does not complete it."""
        return None

    @property
    def is_complete(self) -> bool:
        """Whether the live followers have deleted the records, or will not under this leader."""
        return self._is_followed or not self._is_led

    @property
    def _is_led(self) -> bool:
        return self.partition.serves and self.partition.leader_epoch == self.leader_epoch

    @property
    def _is_followed(self) -> bool:
        return self.partition.low_watermark(self.live()) >= self.offset

    def check(self) -> None:
        """Raise `KafkaError` unless all live replicas have deleted the records.

        The error is that of an offline partition, `NotLeaderError` after a change of the leader
        epoch, or REQUEST_TIMED_OUT.
        """
        partition = self.partition
        if partition.leader_epoch != self.leader_epoch:
            raise NotLeaderError(partition.role.leader_id, partition.leader_epoch)
        partition.check_leader()
        if not self._is_followed:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "the leader has deleted the records; followers delete them when they fetch",
            )


def beginning(partition: Partition) -> Appended:
    """Return the change by which a new leader knows what its predecessors have committed.

    Until then its high watermark may be below records that were acknowledged.
    """
    return Appended(partition, partition.epoch_start, partition.leader_epoch)


async def completed(
    changes: Sequence[Change], purgatory: Purgatory, clock: Clock, deadline: float
) -> None:
    """Wait until all changes are complete, or until `deadline` (monotonic clock, seconds)."""
    while not all(change.is_complete for change in changes):
        now = clock.monotonic()
        if now >= deadline:
            return
        await _event(changes, purgatory, min(deadline, now + _ROUND_S))


async def _event(changes: Sequence[Change], purgatory: Purgatory, deadline: float) -> None:
    done = asyncio.Event()
    wait = Acknowledgement(changes, done.set, lambda error: done.set())
    parked = wait.park(purgatory, deadline)
    try:
        await done.wait()
    finally:  # a cancelled request must not leave its wait behind
        purgatory.cancel(parked)
