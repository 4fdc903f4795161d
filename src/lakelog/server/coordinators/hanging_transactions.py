"""Ends the transactions that hang, when a broker starts (see `coordinator.transaction.hanging`) and
while it leads in a cluster.

All decisions are made, and the markers appended, before the next loop iteration. So no request and
no marker of a coordinator comes between them. A marker that cannot be appended, because the disk is
full, is retried every second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import FailingTask, event
from lakelog.coordinator.transaction.coordinator import TransactionCoordinator
from lakelog.coordinator.transaction.endings import Marker
from lakelog.coordinator.transaction.hanging import Verdict, end_marker, find_hanging, judge
from lakelog.coordinator.transaction.state import OpenTransaction
from lakelog.protocol.transactions import DescribedTransaction
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.runtime.api import Tasks, complete, pause
from lakelog.server.coordinators.markers import LocalMarkers
from lakelog.server.coordinators.verification import KnownTransactions

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


_PAUSE_FIRST_S = 2.0
_PAUSE_LONGEST_S = 60.0
_ASKED_MAX = 1000
"""Transactions in one question to all coordinators; the others wait for the next one."""


class _Suspect(NamedTuple):
    """A transaction that was open when its partition, or a coordinator, got a new leader."""

    transaction: OpenTransaction
    leader_epoch: int


class HangingWatch:
    """Watches the transactions that were open when this broker became their leader.

    The broker looks for open transactions when it becomes the leader of a partition, and in all led
    partitions when a partition of `__transaction_state` gets another leader epoch, whose leader may
    lack records. It asks all coordinators about these transactions until each has ended
    (`verification.py`). Most have ended before the first question, and the pauses grow.

    A marker is written only if the same transaction is still open in the same leader epoch. It has
    the epoch of that transaction, in which the producer can begin no other one: it is fenced first
    unless its transactional id has a newer epoch.

    Args:
        known_transactions: the transactions of all coordinators.
        transactions: counts the hanging ones.
    """

    def __init__(
        self,
        partitions: PartitionRegistry,
        known_transactions: KnownTransactions,
        transactions: TransactionCoordinator,
        markers: LocalMarkers,
        tasks: Tasks,
    ) -> None:
        self._partitions = partitions
        self._known_transactions = known_transactions
        self._transactions = transactions
        self._markers = markers
        self._tasks = tasks
        self._suspects: dict[_Suspect, None] = {}
        self._logged: set[_Suspect] = set()
        """Suspects with a line in the log, although they have not ended."""
        self._running: Any = None
        self._over: asyncio.Future[Any] | None = None
        self._pause_s = _PAUSE_FIRST_S
        self._task = FailingTask(logger, "the watch of hanging transactions")

    def look(self, partitions: Iterable[Partition]) -> None:
        """Watch the open transactions of those partitions that this broker leads."""
        leader = self._partitions.leader
        suspects = {
            _Suspect(open_txn, leader(*open_txn.topic_partition).leader_epoch): None
            for open_txn in open_transactions(partitions)
        }
        if suspects.keys() <= self._suspects.keys():
            return
        self._suspects |= suspects
        self._pause_s = _PAUSE_FIRST_S
        if self._running is None:
            self._running = self._tasks.spawn(self._run(), name="hanging transactions")
        elif self._over is not None:
            complete(self._over)

    def close(self) -> None:
        """Watch nothing any more."""
        if self._running is not None:
            self._running.cancel()
            self._running = None

    async def _run(self) -> None:
        while self._suspects:
            self._over = self._tasks.future()
            await pause(self._tasks, self._pause_s, self._over)
            self._over = None
            self._pause_s = min(2 * self._pause_s, _PAUSE_LONGEST_S)
            self._suspects = dict.fromkeys(filter(self._is_open, self._suspects))
            self._logged.intersection_update(self._suspects)
            if self._suspects:
                with self._task:  # the suspects may block consumers for ever
                    await self._ask()
        self._running = None

    async def _ask(self) -> None:
        """Ask all coordinators about the oldest suspects, and end the hanging ones."""
        asked = list(islice(self._suspects, _ASKED_MAX))
        try:
            states = await self._known_transactions.of(
                {suspect.transaction.producer_id for suspect in asked}
            )
        except KafkaError:
            return  # a coordinator is being replaced or loaded, or cannot be reached
        begun: list[tuple[_Suspect, Awaitable[ErrorCode]]] = []
        fenced: dict[str, DescribedTransaction] = {}
        for suspect in filter(self._is_open, asked):
            state = states.get(suspect.transaction.producer_id)
            verdict = judge(suspect.transaction, state)
            if verdict is Verdict.ABORT:
                marker = end_marker(
                    suspect.transaction, suspect.transaction.producer_epoch, commit=False
                )
                begun.append((suspect, self._markers.begin(marker)))
            elif verdict is Verdict.FENCE:
                assert state is not None
                fenced[state.transactional_id] = state
                if self._is_first(suspect):
                    log_found(suspect.transaction, state.transactional_id)
            # The others are asked about again, after the suspects that waited.
            self._suspects[suspect] = self._suspects.pop(suspect)
        for suspect, written in begun:
            self._note(suspect, await written)
        await self._fence(fenced.values())

    async def _fence(self, states: Iterable[DescribedTransaction]) -> None:
        for state in states:
            try:
                await self._known_transactions.fence(state)
            except KafkaError:
                continue  # the next answer shows whether it was carried out
            self._pause_s = _PAUSE_FIRST_S

    def _note(self, suspect: _Suspect, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self._transactions.hanging_found += 1
            log_ended(suspect.transaction, committed=False)
        elif self._is_first(suspect):
            log_failed(suspect.transaction, code)

    def _is_first(self, suspect: _Suspect) -> bool:
        """Return whether the log has no line about the suspect; it gets one now."""
        is_first = suspect not in self._logged
        self._logged.add(suspect)
        return is_first

    def _is_open(self, suspect: _Suspect) -> bool:
        """Return whether the same transaction is open, in the same leader epoch."""
        open_txn = suspect.transaction
        partition = self._partitions.get(*open_txn.topic_partition)
        if partition is None or not partition.serves:
            return False
        if partition.leader_epoch != suspect.leader_epoch:
            return False
        entry = partition.log.producers.entries.get(open_txn.producer_id)
        return (
            entry is not None
            and entry.txn_first_offset == open_txn.first_offset
            and entry.epoch == open_txn.producer_epoch
        )
