"""Transactional producers of both protocols: the classic one, and KIP-890's."""

from __future__ import annotations

from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import FindCoordinatorRequest
from lakelog.protocol.produce import ProduceRequest
from lakelog.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from simulator.checkers.laws import Law
from simulator.checkers.observations import Fate, Place, Transaction
from simulator.clients.client import RETRIABLE, Client
from simulator.clients.context import ClientContext
from simulator.clients.producers.batches import answer_of, batch_of, produce_request
from simulator.clients.producers.transaction_requests import (
    TIMEOUT_MS,
    Identity,
    end_request,
    init_request,
    offset_request,
)
from simulator.network.connection import NoResponse

_TRANSACTION = 1
_OVERSLEEPS = 0.03
"""Chance to pause beyond the transaction's timeout."""
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
_OVER = frozenset(
    {
        *_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Errors that end the transaction: the coordinator ended it, or another producer has the id."""


class TransactionOver(Exception):  # noqa: N818 - an event
    """The transaction cannot continue."""


class TransactionalProducer(Client):
    """Commits or aborts one transaction after another.

    `version` is the transaction version: 0 sends AddPartitionsToTxn, 2 gets an epoch for each
    transaction (KIP-890). `pause_s` is the longest pause after a batch, with few exceptions.
    """

    def __init__(
        self,
        context: ClientContext,
        name: str,
        partitions: list[Place],
        version: int,
        *,
        keyed: bool = False,
        pause_s: float = 0.3,
    ) -> None:
        super().__init__(context, name)
        self._pause_s = pause_s
        self._places = partitions
        self._version = version
        self._keyed = keyed
        self._id = name.partition("'")[0]
        self._identity: Identity = (-1, -1)
        self._sequences: dict[Place, int] = {}
        self._current: Transaction | None = None
        self._began = self._filled_at = self._identified_at = 0.0
        self._unknown = 0
        """How many requests without a known outcome may have raised the epoch since `_use`."""

    def replaced(self) -> TransactionalProducer:
        """Return a successor; it, or the timeout, aborts the open transaction."""
        if self._current is not None and self._current.fate is Fate.OPEN:
            self._current.fate = Fate.ABORTED
        return TransactionalProducer(
            self.context,
            self.next_name,
            self._places,
            self._version,
            keyed=self._keyed,
            pause_s=self._pause_s,
        )

    async def run(self) -> None:
        await self._identify()
        while not self.conditions.is_ending:
            await self.pause(0.0, 1.5)
            await self._prepare()
            transaction = self._current = self.history.begin(f"{self.name}/{self._serial}")
            self._began = self.now
            try:
                await self._fill(transaction)
            except TransactionOver:
                transaction.fate = Fate.ABORTED
                await self._start_again()
                continue
            self._filled_at = self.now
            oversleeps = self.rng.random() < _OVERSLEEPS
            if oversleeps:
                await self.pause(TIMEOUT_MS / 1000 + 2, TIMEOUT_MS / 1000 + 4)
            await self._end(transaction, commit=not oversleeps and self.rng.random() < 0.7)

    async def _prepare(self) -> None:
        """Prepare the next transaction."""

    async def _start_again(self) -> None:
        """Get another epoch; sometimes check that the old one is fenced."""
        old, since = self._identity, self._identified_at
        await self._identify()
        if self.rng.random() < 0.5:
            await self._act_as_zombie(old, since)

    async def _act_as_zombie(self, old: Identity, since: float) -> None:
        """Send a batch with the old identity, as a process that slept: it must be rejected.

        A log that lost its end since the identity was assigned, `since`, may not know it. A leader
        that has not heard of its successor may take the batch for a repeated one, and answers as it
        did before.
        """
        partition, values = self.some_place(self._places), self.new_values(1)
        zombie = self.history.begin(f"{self.name}/zombie")
        zombie.fate = Fate.ABORTED
        self.history.will_send(
            partition, values, transaction=zombie, timestamp=self.context.simulator.wall_ms()
        )
        batch = batch_of(self, values, (*old, 0), transactional=True, keyed=self._keyed)
        request = produce_request(partition, batch, transaction=self._id)
        try:
            response = await self.connection.call(request, 12 if self._version == 2 else 11)
        except NoResponse:
            return
        self.findings.expect(
            Law.FENCED,
            answer_of(response).error_code != 0
            or old == self._identity
            or self.conditions.cut_at >= since
            or self.may_be_stale(since),
            f"{self.name}: a producer of epoch {old} was not fenced by {self._identity}",
        )

    # Its identity

    async def _identify(self) -> None:
        find = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=[self._id])
        request = init_request(self._id)
        while True:
            await self.ask(find, 4)
            asked_at, lost = self.now, self.lost
            answer = await self.ask(request, 4)
            self._unknown += self.lost - lost
            if answer.error_code == 0:
                break
            self._unknown += answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS
            if answer.error_code not in (*RETRIABLE, *_FENCED):
                self.unexpected("InitProducerId", answer.error_code)
            await self.pause(0.1, 0.8)
        self._check_spared(answer.producer_id, answer.producer_epoch)
        self._use(answer.producer_id, answer.producer_epoch, asked_at)

    def _check_spared(self, producer_id: int, epoch: int) -> None:
        """Check that the epoch rose no more than necessary: a producer id has only 32,767.

        Each request and each fence takes one. A fence takes two from a producer of KIP-890, because
        the EndTxn that it may have sent takes another (`fenced` of the coordinator).
        """
        fence = 2 if self._version == 2 else 1
        most = self._identity[1] + fence + 1 + self._unknown
        self.findings.expect(
            Law.EPOCHS_SPARED,
            producer_id != self._identity[0]
            or epoch <= most
            or self.conditions.cut_at >= self._identified_at,
            f"{self.name}: producer {producer_id} has epoch {epoch} after {self._identity[1]}",
        )

    def _use(self, producer_id: int, epoch: int, asked_at: float) -> None:
        self.findings.expect(
            Law.NEW_IDENTITY,
            self.context.producer_ids.is_new(self.home.name, producer_id, epoch),
            f"{self.name}: producer {producer_id} has epoch {epoch} a second time",
        )
        self.findings.expect(
            Law.IDENTITY_KEPT,
            self.context.producer_ids.may_have(self.home.name, self._id, producer_id, asked_at),
            f"{self.name}: {self._id} has producer {producer_id} after another",
        )
        self._identity = producer_id, epoch
        self._identified_at = self.now
        self._unknown = 0
        self._sequences.clear()
        self.note("identity", producer_id, epoch)

    # A transaction

    async def _fill(self, transaction: Transaction) -> None:
        for _ in range(self.rng.randint(1, 3)):
            partition = self.some_place(self._places)
            await self._add(partition)
            await self._send(transaction, partition)
            await self.pause(0.0, self._pause_s if self.rng.random() < 0.95 else 10.0)
        if self.rng.random() < 0.4:
            await self._commit_offset(transaction)

    async def _add(self, partition: Place) -> None:
        if self._version == 2:
            return
        topics = [AddPartitionsToTxnTopic(name=partition[0], partitions=[partition[1]])]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._identity[0],
            v3_and_below_producer_epoch=self._identity[1],
            v3_and_below_topics=topics,
        )
        while True:
            answer = await self.ask(request, 3)
            (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
            if await self._is_done("AddPartitionsToTxn", result.partition_error_code):
                return

    async def _send(self, transaction: Transaction, partition: Place) -> None:
        key = self.some_key() if self._keyed else b""
        values = self.new_values(self.rng.randint(1, 3), key=key)
        self.history.will_send(
            partition,
            values,
            once=True,
            transaction=transaction,
            producer_id=self._identity[0],
            timestamp=self.context.simulator.wall_ms(),
        )
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        producer = (*self._identity, sequence)
        batch = batch_of(self, values, producer, transactional=True, keyed=self._keyed)
        request = produce_request(partition, batch, transaction=self._id)
        while True:
            answer = answer_of(await self._produce(request, 12 if self._version == 2 else 11))
            if answer.error_code == 0:
                self.history.acknowledged(partition, answer.base_offset, values)
            if await self._is_done("Produce", answer.error_code):
                return

    async def _produce(self, request: ProduceRequest, version: int) -> Any:
        """Return the response; repeat the request until one arrives."""
        return await self.ask(request, version)

    async def _commit_offset(self, transaction: Transaction) -> None:
        """Commit an offset of a group without members, in the transaction."""
        if self._version != 2:
            request = AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=self._identity[0],
                producer_epoch=self._identity[1],
                group_id=self._id,
            )
            while not await self._is_done(
                "AddOffsetsToTxn", (await self.ask(request, 3)).error_code
            ):
                pass
        partition = self.some_place(self._places)
        value = self.offsets.will_commit(self._id, partition, transaction)
        commit = offset_request(self._id, self._identity, self._id, partition, value)
        version = 5 if self._version == 2 else 3
        while True:
            answer = (await self.ask(commit, version)).topics[0].partitions[0]
            if answer.error_code == 0:
                self.offsets.acknowledged(self._id, partition, value, self.home.log_ends())
            if await self._is_done("TxnOffsetCommit", answer.error_code):
                return

    async def _is_done(self, what: str, code: int) -> bool:
        """Return False if the request has to be repeated. Raises `TransactionOver`."""
        if code == 0:
            return True
        if code not in RETRIABLE:
            if code not in _OVER:
                self.unexpected(what, code)
            elif not self._is_late:
                self.findings.violation(
                    Law.IN_TIME, f"{self.name}: {what}: {ErrorCode(code).name} before the timeout"
                )
            raise TransactionOver
        await self.pause(0.05, 0.4)
        return False

    @property
    def _is_late(self) -> bool:
        """Whether the coordinator may have timed the transaction out, or lost it.

        As in Apache Kafka the wall clock counts, which may have leapt past the timeout.
        """
        elapsed_s = self.now - self._began
        was_cut = self.conditions.cut_at >= self._identified_at
        has_leapt = self.conditions.leapt_at >= self._began
        is_old = elapsed_s > TIMEOUT_MS / 1000 * 0.9
        return is_old or has_leapt or was_cut or self.may_be_stale(self._began)

    # Its end

    @property
    def _is_over(self) -> bool:
        """Whether the coordinator must have timed the transaction out by now."""
        conditions = self.conditions
        return (
            self.now - self._filled_at > TIMEOUT_MS / 1000 + 1.5
            and max(conditions.leapt_at, conditions.cut_at) < self._identified_at
            and not conditions.was_disturbed(self._began)
        )

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        is_over = self._is_over
        transaction.fate = Fate.COMMITTING if commit else Fate.ABORTED
        request = end_request(self._id, self._identity, commit=commit)
        while True:
            answer = await self.ask(request, 5 if self._version == 2 else 4, self._patience())
            if answer.error_code == 0:
                break
            if answer.error_code not in RETRIABLE:
                if not self._is_late:
                    self.unexpected(f"EndTxn({commit})", answer.error_code)
                await self._start_again()
                return
            await self.pause(0.05, 0.4)
        self.findings.expect(
            Law.FENCED,
            not is_over,
            f"{self.name}: a producer ended a transaction that had timed out",
        )
        transaction.ends = self.home.log_ends()
        if commit:
            transaction.fate = Fate.COMMITTED
        self.note("ended", transaction.name, commit)
        self._after_end(answer)

    def _patience(self) -> float:
        """Return a timeout in seconds, sometimes so short that EndTxn has to be repeated."""
        short_s = 0.003 if self.context.plan.replicas == 1 else 0.1
        return short_s if self.rng.random() < 0.15 else 5.0

    def _after_end(self, answer: Any) -> None:
        if (
            answer.producer_id >= 0
            and (answer.producer_id, answer.producer_epoch) != self._identity
        ):
            self._use(answer.producer_id, answer.producer_epoch, self._identified_at)
