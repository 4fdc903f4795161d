"""Ends the transactions that hang when a broker starts: see `coordinator.transaction.hanging`.

All decisions are made, and the markers appended, before the loop has another turn. So no request
and no marker of a coordinator comes between them. A marker that cannot be appended, because the
disk is full, is retried every second.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial

from lakelog.base.errors import ErrorCode
from lakelog.base.events import event
from lakelog.coordinator.transaction.coordinator import TransactionCoordinator
from lakelog.coordinator.transaction.hanging import find_hanging
from lakelog.coordinator.transaction.markers import Marker
from lakelog.coordinator.transaction.state import OpenTransaction
from lakelog.replica.partition import Partition
from lakelog.runtime.api import Tasks, pause
from lakelog.server.coordinators.markers import LocalMarkers

logger = logging.getLogger(__name__)

_RETRY_S = 1.0


def open_transactions(partitions: Iterable[Partition]) -> Iterator[OpenTransaction]:
    """Yield the open transactions in the partitions that this broker leads."""
    for partition in partitions:
        producers = partition.log.producers
        if not partition.serves or producers.first_unstable_offset < 0:
            continue
        for producer_id, entry in producers.entries.items():
            if entry.txn_first_offset >= 0:
                yield OpenTransaction(
                    partition.topic,
                    partition.index,
                    producer_id,
                    entry.epoch,
                    entry.coordinator_epoch,
                    entry.txn_first_offset,
                )


def end_hanging(
    partitions: Iterable[Partition],
    transactions: TransactionCoordinator,
    markers: LocalMarkers,
    tasks: Tasks,
) -> None:
    """End the hanging transactions; called when all coordinators have been loaded."""
    being_open = list(open_transactions(partitions))
    if not being_open:
        return
    found = find_hanging(being_open, transactions.owners(), knows_all=transactions.knows_all)
    hanging = {each for each, _ in found.markers}.union(*found.fences.values())
    transactions.hanging_found += len(hanging)
    for each, marker in found.markers:
        written = markers.begin(marker)
        again = partial(_marker_again, each, partitions, transactions)
        tasks.spawn(_end(each, marker, written, again, markers, tasks), name="hanging")
    for transactional_id, each_of in found.fences.items():
        for each in each_of:
            log_found(each, transactional_id)
        transactions.fence(transactional_id, each_of)


def _marker_again(
    found: OpenTransaction, partitions: Iterable[Partition], transactions: TransactionCoordinator
) -> Marker | None:
    """Return the marker if it still has to be written.

    Clients may have continued meanwhile: the same transaction must be open, and no coordinator may
    know it.
    """
    still = [each for each in open_transactions(partitions) if each == found]
    hanging = find_hanging(still, transactions.owners(), knows_all=transactions.knows_all)
    return next((marker for _, marker in hanging.markers), None)


async def _end(
    found: OpenTransaction,
    marker: Marker,
    written: Awaitable[ErrorCode],
    again: Callable[[], Marker | None],
    markers: LocalMarkers,
    tasks: Tasks,
) -> None:
    """Retry while the partition cannot append the marker, as on a full disk."""
    is_logged = False
    while (code := await written) is not ErrorCode.NONE:
        if not is_logged:
            is_logged = True
            log_failed(found, code)
        if not code.retriable:
            return
        await pause(tasks, _RETRY_S)
        next_marker = again()
        if next_marker is None:
            return
        marker, written = next_marker, markers.begin(next_marker)
    log_ended(found, committed=marker.commit)


def log_found(found: OpenTransaction, transactional_id: str) -> None:
    """Log that the coordinator of a transactional id has to abort the transaction."""
    logger.warning(
        "%s: coordinator of %s is to abort it",
        _described(found),
        transactional_id,
        extra=event(
            "hanging_txn_found",
            topic=found.topic,
            partition=found.partition,
            transactional_id=transactional_id,
        ),
    )


def log_failed(found: OpenTransaction, code: ErrorCode) -> None:
    """Log that the marker cannot be written now."""
    logger.error(
        "%s: it cannot be ended: %s",
        _described(found),
        code.name,
        extra=event("hanging_txn_failed", topic=found.topic, partition=found.partition),
    )


def log_ended(found: OpenTransaction, *, committed: bool) -> None:
    """Log that the marker is committed."""
    logger.warning(
        "%s: it was %s",
        _described(found),
        "committed" if committed else "aborted",
        extra=event(
            "hanging_txn_ended",
            topic=found.topic,
            partition=found.partition,
            committed=committed,
        ),
    )


def _described(found: OpenTransaction) -> str:
    return (
        f"{found.topic}-{found.partition}: a transaction hangs, of producer id "
        f"{found.producer_id}, epoch {found.producer_epoch}, from offset {found.first_offset}"
    )
