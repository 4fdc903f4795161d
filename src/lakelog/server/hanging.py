"""Ends the transactions that hang when a broker starts: see `coordinator.transaction.hanging`.

All is decided, and the markers are in their logs, before the loop has another turn: so neither a
client nor a coordinator's own marker comes in between.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Iterator

from lakelog.base.errors import ErrorCode
from lakelog.base.events import event
from lakelog.coordinator.transaction.coordinator import TransactionCoordinator
from lakelog.coordinator.transaction.hanging import OpenTransaction, find_hanging
from lakelog.coordinator.transaction.markers import Marker
from lakelog.replica.partition import Partition
from lakelog.runtime.api import Tasks
from lakelog.server.markers import LocalMarkers

logger = logging.getLogger(__name__)


def open_transactions(partitions: Iterable[Partition]) -> Iterator[OpenTransaction]:
    for partition in partitions:
        producers = partition.log.producers
        if producers.first_unstable_offset < 0:
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
    """To be called when all that is coordinated here has been loaded."""
    being_open = list(open_transactions(partitions))
    if not being_open:
        return
    found = find_hanging(being_open, transactions.owners(), knows_all=transactions.knows_all)
    hanging = {each for each, _ in found.markers}.union(*found.fences.values())
    transactions.hanging_found += len(hanging)
    for each, marker in found.markers:
        tasks.spawn(_report(each, marker, markers.begin(marker)), name="hanging")
    for transactional_id, each_of in found.fences.items():
        for each in each_of:
            logger.warning(
                "%s: coordinator of %s is to abort it",
                _told(each),
                transactional_id,
                extra=event(
                    "hanging_txn_found",
                    topic=each.topic,
                    partition=each.partition,
                    transactional_id=transactional_id,
                ),
            )
        transactions.fence(transactional_id, each_of)


async def _report(found: OpenTransaction, marker: Marker, written: Awaitable[ErrorCode]) -> None:
    code = await written
    if code is not ErrorCode.NONE:
        logger.error(
            "%s: it cannot be ended: %s",
            _told(found),
            code.name,
            extra=event("hanging_txn_failed", topic=found.topic, partition=found.partition),
        )
        return
    logger.warning(
        "%s: it was %s",
        _told(found),
        "committed" if marker.commit else "aborted",
        extra=event(
            "hanging_txn_ended",
            topic=found.topic,
            partition=found.partition,
            committed=marker.commit,
        ),
    )


def _told(found: OpenTransaction) -> str:
    return (
        f"{found.topic}-{found.partition}: a transaction hangs, of producer id "
        f"{found.producer_id}, epoch {found.producer_epoch}, from offset {found.first_offset}"
    )
