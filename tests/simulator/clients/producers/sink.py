"""A query with a sink: each batch is written by tasks and committed as a set (ADR 8).

The history has one transaction for the winners of a batch, and one for each losing attempt. After
a crash, or a commit without an answer, a new run learns the next batch from the control record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.client.sink import QueryRun, Receipt, RecordCount, requests
from lakelog.protocol.commit_sets import NO_BATCH, Refusal, Winner
from simulator.checkers.laws import Law
from simulator.checkers.observations import Fate, Place, Transaction
from simulator.clients.client import RETRIABLE
from simulator.clients.context import ClientContext
from simulator.clients.producers.transaction_requests import TIMEOUT_MS
from simulator.clients.producers.transactional import TransactionalProducer, TransactionOver

_BUMPING = 2
_QUERY = "query"
_INIT, _END = 4, 5
"""Versions of the requests."""
_LOSES = 0.3
"""Chance that a task has another attempt, which loses."""
_GIVES_UP = 0.1
"""Chance that the driver begins a new run instead of waiting for the answer to its commit."""
_ABORTS = 0.1


@dataclass(slots=True)
class Checkpoint:
    """The state of a query that survives its process."""

    runs: int = 0
    attempts: int = 0
    batch: int = 0
    """The batch that is being written."""
    transaction: Transaction | None = None
    """Its winners."""


class SinkQuery(TransactionalProducer):
    """Writes one batch after another, with tasks that run one at a time."""

    def __init__(
        self,
        context: ClientContext,
        name: str,
        partitions: list[Place],
        checkpoint: Checkpoint | None = None,
    ) -> None:
        super().__init__(context, name, partitions, _BUMPING)
        self._sink_id = self._id
        self._run = QueryRun(self._sink_id, _QUERY, "", -1, -1)
        self._checkpoint = checkpoint or Checkpoint()
        self._began_run = 0.0

    def replaced(self) -> SinkQuery:
        """Return a successor, whose run fences this one."""
        for each in (self._current, self._checkpoint.transaction):
            if each is not None and each.fate is Fate.OPEN:
                each.fate = Fate.ABORTED
        return SinkQuery(self.context, self.next_name, self._places, self._checkpoint)

    async def run(self) -> None:
        await self._begin_run()
        while not self.conditions.is_ending:
            await self.pause(0.0, 1.5)
            await self._batch()

    async def _begin_run(self) -> None:
        """Fence the run before this one, and learn whether its last batch was committed."""
        self._checkpoint.runs += 1
        run_id = f"run-{self._checkpoint.runs}"
        request = requests.begin_run(self._sink_id, _QUERY, run_id, self._checkpoint.batch)
        while (answer := await self.ask(request, _INIT)).error_code != 0:
            if answer.error_code not in RETRIABLE:
                # Only a lost end of the log can put the sink behind its query, or ahead of it.
                if self.conditions.cut_at < 0 or answer.sink is None:
                    self.unexpected("InitProducerId of a sink", answer.error_code)
                batch = max(answer.sink.next_batch, 0)
                request = requests.begin_run(self._sink_id, _QUERY, run_id, batch)
            await self.pause(0.05, 0.4)
        identity = answer.producer_id, answer.producer_epoch
        self._run = QueryRun(self._sink_id, _QUERY, run_id, *identity, answer.sink.next_batch)
        self.note("run", *identity, answer.sink.next_batch)
        self._settle(answer.sink.next_batch)
        self._began_run = self.now

    def _settle(self, next_batch: int) -> None:
        """Compare the control record with the batch whose outcome was unknown."""
        checkpoint, pending = self._checkpoint, self._checkpoint.transaction
        may_be = {checkpoint.batch}
        if checkpoint.batch == 0:
            may_be.add(NO_BATCH)
        if pending is not None and pending.fate is Fate.COMMITTING:
            may_be.add(checkpoint.batch + 1)
        self.findings.expect(
            Law.BATCH_ONCE,
            next_batch in may_be or self.conditions.cut_at >= 0,
            f"{self.name}: the next batch is {next_batch}, not one of {sorted(may_be)}",
        )
        if pending is not None and pending.fate is Fate.COMMITTING:
            is_committed = next_batch == checkpoint.batch + 1
            pending.fate = Fate.COMMITTED if is_committed else Fate.ABORTED
            pending.ends = self.home.log_ends()
        checkpoint.transaction = None
        checkpoint.batch = max(next_batch, 0)

    # A batch

    async def _batch(self) -> None:
        batch = self._checkpoint.batch
        transaction = self.history.begin(f"{self._sink_id}/{batch}")
        self._checkpoint.transaction = transaction
        self._began = self.now
        winners: list[Winner] = []
        for task in range(self.rng.randint(1, 3)):
            if self.rng.random() < _LOSES:
                loser = self.history.begin(f"{self._sink_id}/{batch}/{task}/loser")
                loser.fate = Fate.ABORTED
                await self._task(task, loser)
            won = await self._task(task, transaction)
            if won is None:
                transaction.fate = Fate.ABORTED
                await self._begin_run()
                return
            winners.append(won)
        if self.rng.random() < _ABORTS:
            transaction.fate = Fate.ABORTED
            await self._end_batch(transaction, [], commit=False)
            return
        transaction.fate = Fate.COMMITTING
        await self._end_batch(transaction, winners, commit=True)

    async def _task(self, task: int, transaction: Transaction) -> Winner | None:
        """Write one attempt; return its receipt, or None if its transaction is over."""
        self._current = transaction
        self._checkpoint.attempts += 1
        self._id = self._run.child_id(self._checkpoint.batch, task, self._checkpoint.attempts)
        if not await self._open_child():
            return None
        counts: dict[Place, int] = {}
        for _ in range(self.rng.randint(1, 2)):
            partition = self.some_place(self._places)
            if not await self._sent(transaction, partition):
                return None
            counts[partition] = self._sequences[partition]
            await self.pause(0.0, 0.3 if self.rng.random() < 0.95 else 10.0)
        written = tuple(RecordCount(*partition, records) for partition, records in counts.items())
        return requests.winner(Receipt(self._id, *self._identity, written))

    async def _sent(self, transaction: Transaction, partition: Place) -> bool:
        try:
            await self._send(transaction, partition)
        except TransactionOver:
            return False
        return True

    async def _open_child(self) -> bool:
        """Begin the child `_id`; return False if the run or the batch is over."""
        request = requests.open_child(self._run, self._id, TIMEOUT_MS)
        asked_at = self.now
        while (answer := await self.ask(request, _INIT)).error_code != 0:
            if answer.error_code not in RETRIABLE:
                self._check_excused("a task", answer)
                return False
            await self.pause(0.05, 0.4)
        self._use(answer.producer_id, answer.producer_epoch, asked_at)
        return True

    async def _end_batch(
        self, transaction: Transaction, winners: list[Winner], *, commit: bool
    ) -> None:
        request = requests.end_batch(self._run, self._checkpoint.batch, winners, commit=commit)
        while True:
            answer = await self.ask(request, _END, self._patience())
            if answer.error_code == 0:
                break
            if answer.error_code not in RETRIABLE:
                self._check_excused("the end of a batch", answer)
                transaction.fate = Fate.ABORTED
            if answer.error_code not in RETRIABLE or self.rng.random() < _GIVES_UP:
                await self._begin_run()
                return
            await self.pause(0.05, 0.4)
        if commit:
            transaction.ends = self.home.log_ends()
            transaction.fate = Fate.COMMITTED
            self._checkpoint.batch += 1
        self._checkpoint.transaction = None
        self.note("batch", self._checkpoint.batch, commit)

    def _check_excused(self, what: str, answer: Any) -> None:
        """Check that only a timeout, or a lost end of a log, explains a refusal."""
        reason = answer.refused.reason if answer.refused is not None else None
        is_lost = self.conditions.cut_at >= 0
        if is_lost or (reason == Refusal.NOT_OPEN and self._is_late):
            return
        self.unexpected(f"{what} (reason {reason})", ErrorCode(answer.error_code))
