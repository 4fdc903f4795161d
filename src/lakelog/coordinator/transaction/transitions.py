"""The steps of a transactional id: which are allowed, and the state after each.

These are plain functions of values. They reject a request by raising `KafkaError` with the code of
Apache Kafka 4.4. Sources: KIP-98, KIP-360 (a producer continues with the next epoch), KIP-890 (each
transaction has its own epoch) and `TransactionCoordinator` of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.state import (
    EPOCH_LAST,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    TopicPartition,
    Transaction,
    TransactionState,
    TransactionVersion,
)

_S = TransactionState


class Producer(NamedTuple):
    """A producer id with an epoch."""

    producer_id: int
    epoch: int


class Known(NamedTuple):
    """The coordinator's knowledge of a transactional id when it decides a request."""

    current: Transaction | None
    """The committed state."""
    is_complete: bool
    """Whether the next step may be decided: none is being written, and no fence is pending."""
    may_be_old: bool
    """Whether clients may have later epochs of the producer id than the log has."""


def _step(
    current: Transaction, now_ms: int, state: TransactionState, **changes: Any
) -> Transaction:
    """Return the transaction in another state; it names the producer id before this step."""
    before = current.producer_id
    return replace(
        current, state=state, last_update_ms=now_ms, previous_producer_id=before, **changes
    )


# InitProducerId


def needs_producer_id(
    current: Transaction | None, expected: Producer | None, *, may_be_old: bool
) -> bool:
    """Return whether `initialised` needs a new producer id.

    Args:
        expected: producer id and epoch that the client holds, or None.
        may_be_old: whether clients may have later epochs of the current producer id.
    """
    if current is None:
        return True
    # The transaction has to end first, with the identity that its records carry.
    if current.state in (_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT):
        return False
    is_used_up = _is_exhausted(current) or may_be_old
    return is_used_up and (expected is None or expected == _identity(current))


def _is_exhausted(current: Transaction) -> bool:
    """Return whether the producer id has no further epoch for a client."""
    return current.producer_epoch >= EPOCH_LAST


def _identity(current: Transaction) -> Producer:
    return Producer(current.producer_id, current.producer_epoch)


def initialised(
    current: Transaction | None,
    expected: Producer | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int,
    *,
    may_be_old: bool,
) -> Transaction:
    """Return the transactional id with a new epoch, which fences every other producer of the id.

    With an ongoing transaction, return its abort (`fenced`); the client has to retry.

    Args:
        expected: producer id and epoch that the client holds and continues with (KIP-360).
        timeout_ms: transaction timeout.
        now_ms: milliseconds since the epoch.
        new_producer_id: used only if `needs_producer_id`.
        may_be_old: as for `needs_producer_id`.

    Raises `KafkaError(CONCURRENT_TRANSACTIONS)` while a transaction ends, `PRODUCER_FENCED` if
    `expected` is outdated.
    """
    if current is None:
        return Transaction(
            producer_id=new_producer_id,
            producer_epoch=0,
            timeout_ms=timeout_ms,
            last_update_ms=now_ms,
            previous_producer_id=new_producer_id,
        )
    if expected is not None:
        _check_not_early(current, expected)
        _check_expected(current, expected)
    # The markers on their way carry the present epoch. A higher one could reach a partition first,
    # which would then reject them, and the transaction would stay open there.
    if current.state.is_ending:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    # The records of the former producer have to be aborted before the new one writes (KIP-98):
    # otherwise a commit of the new one would include them. The client retries until that is done.
    if current.state is _S.ONGOING:
        return fenced(current, now_ms)
    fresh = _step(
        current,
        now_ms,
        _S.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIME,
    )
    return _with_next_epoch(fresh, current, expected, new_producer_id, may_be_old=may_be_old)


def _with_next_epoch(
    fresh: Transaction,
    current: Transaction,
    expected: Producer | None,
    new_producer_id: int,
    *,
    may_be_old: bool,
) -> Transaction:
    """Return `fresh` with the identity that the client gets, given the `current` one."""
    if needs_producer_id(current, expected, may_be_old=may_be_old):
        # `last_epoch` recognises a repetition, and only a client that names its epoch can repeat. A
        # client without one has just started: each of its requests must fence the former producer,
        # even if two look alike.
        last = NO_EPOCH if expected is None else current.producer_epoch
        return replace(fresh, producer_id=new_producer_id, producer_epoch=0, last_epoch=last)
    if expected is None:
        return replace(fresh, producer_epoch=current.producer_epoch + 1, last_epoch=NO_EPOCH)
    if expected == _identity(current):
        return replace(fresh, producer_epoch=current.producer_epoch + 1, last_epoch=expected.epoch)
    # The client missed the response and repeats its request: it gets the same epoch. A rise for
    # every lost response would use up the epochs of the producer id.
    return replace(fresh, previous_producer_id=current.previous_producer_id)


def _check_expected(current: Transaction, expected: Producer) -> None:
    """Raise PRODUCER_FENCED unless the client holds the current epoch or repeats its last request.

    A client that missed the response holds the epoch that its request replaced.
    """
    held = current.producer_id, current.previous_producer_id
    repeats = expected.epoch == current.last_epoch and expected.producer_id in held
    if expected != _identity(current) and not repeats:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def fenced(current: Transaction, now_ms: int) -> Transaction:
    """Return the abort of an ongoing transaction, with its producer fenced.

    The epoch rises past the producer's. At the highest epoch it stays: no client holds that one
    (KAFKA-18660).
    """
    assert current.state is _S.ONGOING, "a decided outcome stays"
    # A client of KIP-890 may repeat EndTxn with the epoch before the current one. After a rise by
    # one, EndTxn of the fenced producer would pass for such a repetition and be answered with
    # success.
    bumps = 2 if current.client_version is TransactionVersion.BUMPING else 1
    epoch = min(current.producer_epoch + bumps, EPOCH_MAX)
    return _step(current, now_ms, _S.PREPARE_ABORT, producer_epoch=epoch, last_epoch=NO_EPOCH)


def fenced_beyond(
    current: Transaction, partitions: Iterable[TopicPartition], epoch: int, now_ms: int
) -> Transaction:
    """Return the abort of the producer's transactions in these partitions, up to this epoch.

    `current` is not about to be committed. The epoch rises by two: after a rise by one, EndTxn of
    the hanging transaction would pass for a repetition of an earlier request.
    """
    assert current.state is not _S.PREPARE_COMMIT
    return _step(
        current,
        now_ms,
        _S.PREPARE_ABORT,
        producer_epoch=min(max(current.producer_epoch, epoch) + 2, EPOCH_MAX),
        partitions=current.partitions | frozenset(partitions),
        start_ms=now_ms if current.start_ms == NO_TIME else current.start_ms,
        last_epoch=NO_EPOCH,
    )


# Partitions


def check_producer(current: Transaction | None, producer: Producer) -> Transaction:
    """Return the transaction if this producer holds the transactional id.

    Raises `KafkaError` with INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED or
    CONCURRENT_TRANSACTIONS.
    """
    _check_not_early(current, producer)
    # The order of the checks is Kafka's: a client treats INVALID_PRODUCER_ID_MAPPING as abortable
    # and PRODUCER_FENCED as fatal.
    if current is None or current.producer_id != producer.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.producer_epoch != producer.epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return current


def _check_not_early(current: Transaction | None, producer: Producer) -> None:
    """Raise CONCURRENT_TRANSACTIONS if the producer's new id is not valid yet.

    EndTxn returns the next producer id early; it becomes valid once every marker is written.
    """
    if current is None or not current.state.is_ending:
        return
    if current.next_producer_id == NO_PRODUCER_ID:
        return
    if producer == _identity(completed(current, current.last_update_ms)):
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)


def verified(
    current: Transaction, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return for each partition NONE if it is in the transaction, else TRANSACTION_ABORTABLE.

    Raises `KafkaError(CONCURRENT_TRANSACTIONS)` while the transaction ends (KIP-890, part 1).
    """
    if current.state.is_ending:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return {
        key: ErrorCode.NONE if key in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for key in partitions
    }


def with_partitions(
    id_state: Known,
    producer: Producer,
    partitions: Iterable[TopicPartition],
    version: TransactionVersion,
    now_ms: int,
) -> Transaction:
    """Decide AddPartitionsToTxn: return the transaction with these partitions.

    The result is the current state itself if it has them all. A transaction begins with its first
    partitions.

    Raises `KafkaError` with INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED or
    CONCURRENT_TRANSACTIONS, the latter also while the previous transaction ends.
    """
    current = check_producer(id_state.current, producer)
    if current.state.is_ending or not id_state.is_complete:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    # Clients repeat AddPartitionsToTxn. Partitions that the transaction has already need no record.
    added = current.partitions | frozenset(partitions)
    if current.state is _S.ONGOING and added == current.partitions:
        return current
    return _step(
        current,
        now_ms,
        _S.ONGOING,
        partitions=added,
        start_ms=current.start_ms if current.state is _S.ONGOING else now_ms,
        client_version=version,
        last_epoch=NO_EPOCH,
    )


# The end of a transaction


class End(NamedTuple):
    """The content of an EndTxn request."""

    producer: Producer
    commit: bool
    version: TransactionVersion


class Ended(NamedTuple):
    """The decision about an EndTxn request; without `producer` it needs a producer id first."""

    step: Transaction | None = None
    """The state to write; None if the transaction has already ended so."""
    producer: Producer | None = None
    """The identity with which the client continues."""


def _check_end(current: Transaction | None, end: End, *, is_retry: bool) -> Transaction:
    """Return the transaction if this producer may end it now. Raises as `ended` does."""
    # Before transaction version 2 the epoch stays the same, so a repeated EndTxn is recognised by
    # the state alone.
    if end.version is not TransactionVersion.BUMPING:
        return check_producer(current, end.producer)
    _check_not_early(current, end.producer)
    if current is None or (current.producer_id != end.producer.producer_id and not is_retry):
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_current = end.producer.epoch == current.producer_epoch
    may_retry = current.state.is_ending or current.state.has_ended
    if not is_current and not (is_retry and may_retry):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    # The client ends its next transaction, which is empty, before the markers of this one are
    # written. A fenced client does not come here: no client holds the epoch of a fence.
    if is_current and current.state.is_ending:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return current


def _is_retry(current: Transaction, producer: Producer) -> bool:
    """Return whether the client repeats EndTxn because it missed the response with its new epoch.

    At the highest epoch without a next producer id the producer was fenced: no response contained
    that epoch.
    """
    if current.producer_epoch == EPOCH_MAX and current.next_producer_id == NO_PRODUCER_ID:
        return False
    if current.producer_epoch == producer.epoch + 1:
        return producer.producer_id in (current.producer_id, current.previous_producer_id)
    return (
        current.previous_producer_id == producer.producer_id
        and current.producer_id != producer.producer_id
        and producer.epoch == EPOCH_LAST
        and current.producer_epoch == 0
    )


def ended(id_state: Known, end: End, now_ms: int, next_producer_id: int) -> Ended:
    """Decide EndTxn: return the Prepare state, and the producer of the next transaction.

    With KIP-890 a transaction without partitions may be aborted: the producer cannot know whether
    the coordinator has added any. A producer id without further epochs is replaced.

    Args:
        now_ms: milliseconds since the epoch.
        next_producer_id: a reserved producer id, or `NO_PRODUCER_ID`.

    Raises `KafkaError` with INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE or
    CONCURRENT_TRANSACTIONS.
    """
    is_bumping = end.version is TransactionVersion.BUMPING
    committed = id_state.current
    is_retry = is_bumping and committed is not None and _is_retry(committed, end.producer)
    current = _check_end(committed, end, is_retry=is_retry)
    # A record is on its way to the log. If it fails, the state before it holds, so nothing may be
    # decided on either of the two.
    if not id_state.is_complete:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is not _S.ONGOING:
        # The markers are being written. The client retries until the transaction has ended, so that
        # its next one cannot begin before (KIP-98).
        if current.state.is_ending and _same_outcome(current, commit=end.commit):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        # The outcome is known already. The client repeats a request whose response was lost, so it
        # gets success for the same outcome and an error for the opposite one, never a second end.
        has_happened = current.state.has_ended and _same_outcome(current, commit=end.commit)
        if has_happened and (is_retry or not is_bumping):
            return Ended(producer=_identity(current))
        if not is_bumping or is_retry or end.commit or current.state.is_ending:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    # At the last epoch the next transaction gets a new producer id. It is chosen before the Prepare
    # record: that record has to name it, so that every later coordinator completes the transaction
    # with the same identity.
    needs_id = is_bumping and (_is_exhausted(current) or id_state.may_be_old)
    if needs_id and next_producer_id == NO_PRODUCER_ID:
        return Ended()
    step = _step(
        current,
        now_ms,
        _S.PREPARE_COMMIT if end.commit else _S.PREPARE_ABORT,
        start_ms=current.start_ms if current.state is _S.ONGOING else now_ms,
        client_version=end.version,
    )
    if is_bumping:
        step = replace(
            step,
            producer_epoch=min(current.producer_epoch + 1, EPOCH_MAX),
            last_epoch=current.producer_epoch,
            next_producer_id=next_producer_id if needs_id else NO_PRODUCER_ID,
        )
    return Ended(step, _identity(completed(step, now_ms)))


def _same_outcome(current: Transaction, *, commit: bool) -> bool:
    return (current.state in (_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT)) == commit


def completed(current: Transaction, now_ms: int) -> Transaction:
    """Return the transaction in its Complete state: every partition has its marker.

    A new producer id continues with the epoch of the old one, if possible. So the epoch before
    identifies a repeated request, after a restart too.
    """
    # Only now may partitions be dropped: while one of them lacks its marker, a coordinator that
    # takes over has to find it here.
    assert current.state.is_ending
    committed = current.state is _S.PREPARE_COMMIT
    done = _step(
        current,
        now_ms,
        _S.COMPLETE_COMMIT if committed else _S.COMPLETE_ABORT,
        partitions=frozenset(),
        next_producer_id=NO_PRODUCER_ID,
    )
    if current.next_producer_id == NO_PRODUCER_ID:
        return done
    # The epoch of a transaction that ended at the last epoch is the greatest; no client may get it,
    # so the new id begins at 0.
    epoch = 0 if current.producer_epoch == EPOCH_MAX else current.producer_epoch
    return replace(done, producer_id=current.next_producer_id, producer_epoch=epoch)
