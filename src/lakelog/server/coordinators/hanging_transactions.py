"""Ends the transactions that hang when a broker starts: see `coordinator.transaction.hanging`.

All decisions are made, and the markers appended, before the next loop iteration. So no request
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
from lakelog.coordinator.transaction.endings import Marker
from lakelog.coordinator.transaction.hanging import find_hanging
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
    endings = find_hanging(being_open, transactions.owners(), knows_all=transactions.knows_all)
    hanging = {open_txn for open_txn, _ in endings.markers}.union(*endings.fences.values())
    transactions.hanging_found += len(hanging)
    for open_txn, marker in endings.markers:
        written = markers.begin(marker)
        again = partial(_marker_again, open_txn, partitions, transactions)
        tasks.spawn(_end(open_txn, marker, written, again, markers, tasks), name="hanging")
    for transactional_id, open_txns in endings.fences.items():
        for open_txn in open_txns:
            log_found(open_txn, transactional_id)
        transactions.fence(transactional_id, open_txns)


def _marker_again(
    open_txn: OpenTransaction, partitions: Iterable[Partition], transactions: TransactionCoordinator
) -> Marker | None:
    """Return the marker if it still has to be written.

    Clients may have continued meanwhile: the same transaction must be open, and no coordinator may
    know it.
    """
    still = [txn for txn in open_transactions(partitions) if txn == open_txn]
    hanging = find_hanging(still, transactions.owners(), knows_all=transactions.knows_all)
    return next((marker for _, marker in hanging.markers), None)


async def _end(
    open_txn: OpenTransaction,
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
            log_failed(open_txn, code)
        if not code.retriable:
            return
        await pause(tasks, _RETRY_S)
        next_marker = again()
        if next_marker is None:
            return
        marker, written = next_marker, markers.begin(next_marker)
    log_ended(open_txn, committed=marker.commit)


def log_found(open_txn: OpenTransaction, transactional_id: str) -> None:
    """Log that the coordinator of a transactional id has to abort the transaction."""
    logger.warning(
        "%s: coordinator of %s is to abort it",
        _described(open_txn),
        transactional_id,
        extra=event(
            "hanging_txn_found",
            topic=open_txn.topic,
            partition=open_txn.partition,
            transactional_id=transactional_id,
        ),
    )


def log_failed(open_txn: OpenTransaction, code: ErrorCode) -> None:
    """Log that the marker cannot be written now."""
    logger.error(
        "%s: it cannot be ended: %s",
        _described(open_txn),
        code.name,
        extra=event("hanging_txn_failed", topic=open_txn.topic, partition=open_txn.partition),
    )


def log_ended(open_txn: OpenTransaction, *, committed: bool) -> None:
    """Log that the marker is committed."""
    logger.warning(
        "%s: it was %s",
        _described(open_txn),
        "committed" if committed else "aborted",
        extra=event(
            "hanging_txn_ended",
            topic=open_txn.topic,
            partition=open_txn.partition,
            committed=committed,
        ),
    )


def _described(open_txn: OpenTransaction) -> str:
    return (
        f"{open_txn.topic}-{open_txn.partition}: a transaction hangs, of producer id "
        f"{open_txn.producer_id}, epoch {open_txn.producer_epoch}, from offset "
        f"{open_txn.first_offset}"
    )
