"""Producers without transactions, idempotent or plain."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from lakelog.base.errors import ErrorCode
from lakelog.protocol.transactions import InitProducerIdRequest
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.clients.client import RETRIABLE, Client
from simulator.clients.context import ClientContext
from simulator.clients.producers.batches import answer_of, batch_of, produce_request
from simulator.network.connection import NoResponse

_VERSION = 12
_IN_FLIGHT_MAX = 5
_SKIP = 0.04


@dataclass(slots=True)
class _Batch:
    topic_partition: Place
    values: list[bytes]
    data: bytes
    starts: int
    """How many times brokers were started when the batch was built."""
    made_at: float
    acked: bool = False
    begins: bool = False
    """Whether no batch of the producer was known to be in the partition."""
    followed: bool = False
    """Whether later batches were sent before the response to this one."""


class PlainProducer(Client):
    """A producer with acks 0, 1 or -1; its retries may append a value twice."""

    def __init__(
        self, context: ClientContext, name: str, partitions: list[Place], acks: int
    ) -> None:
        super().__init__(context, name)
        self._places = partitions
        self._acks = acks

    def replaced(self) -> PlainProducer:
        return PlainProducer(self.context, self.next_name, self._places, self._acks)

    async def run(self) -> None:
        while not self.conditions.is_ending:
            await self.pause(0.0, 1.0)
            partition, values = (
                self.some_place(self._places),
                self.new_values(self.rng.randint(1, 4)),
            )
            self.history.will_send(partition, values, timestamp=self.context.simulator.wall_ms())
            request = produce_request(partition, batch_of(self, values), acks=self._acks)
            for _ in range(3):
                asked_at = self.now
                try:
                    if self._acks == 0:
                        await self.connection.cast(request, _VERSION)
                        break
                    answer = answer_of(await self.connection.call(request, _VERSION))
                except NoResponse:
                    await self.pause(0.1, 1.0)
                    continue
                if answer.error_code == 0:
                    self.note("acked", partition, answer.base_offset)
                    self.history.acknowledged(partition, answer.base_offset, values)
                    break
                if answer.error_code not in RETRIABLE:
                    self.unexpected("Produce", answer.error_code)
                self.expect_progress("Produce", answer.error_code, asked_at)
                await self.pause(0.1, 1.0)


class IdempotentProducer(Client):
    """Retries every batch until it is acknowledged; `keyed` for a compacted topic."""

    def __init__(
        self, context: ClientContext, name: str, partitions: list[Place], *, keyed: bool = False
    ) -> None:
        super().__init__(context, name)
        self._places = partitions
        self._keyed = keyed
        self._identity = (-1, -1)
        self._identified_at = 0.0
        self._sequences: dict[Place, int] = {}
        self._gone_back: set[Place] = set()
        """Partitions whose broker forgot the producer and may have appended an older batch last."""
        self._begun: set[Place] = set()
        """Partitions with an acknowledged batch of this identity."""

    def replaced(self) -> IdempotentProducer:
        return IdempotentProducer(self.context, self.next_name, self._places, keyed=self._keyed)

    async def run(self) -> None:
        await self._identify()
        while not self.conditions.is_ending:
            await self.pause(0.0, 0.6)
            batches = [self._next() for _ in range(self.rng.choice((1, 1, 2, _IN_FLIGHT_MAX)))]
            for number, batch in enumerate(batches):
                batch.followed = any(
                    other.topic_partition == batch.topic_partition
                    for other in batches[number + 1 :]
                )
            sending = [asyncio.ensure_future(self._send(batch)) for batch in batches]
            await asyncio.gather(*sending)
            for batch in batches:
                await self._insist(batch)
            if self.rng.random() < _SKIP and batches[-1].topic_partition in self._sequences:
                await self._skip_sequence(batches[-1].topic_partition)

    async def _skip_sequence(self, partition: Place) -> None:
        """Send a batch with a gap before its sequence: the broker has to reject it."""
        values, starts = self.new_values(1), self.context.brokers.starts
        now = self.now
        self.history.will_send(
            partition, values, made_at=now, timestamp=self.context.simulator.wall_ms()
        )
        producer = (*self._identity, self._sequences[partition] + 1 + self.rng.randrange(5))
        data = batch_of(self, values, producer, keyed=self._keyed)
        batch = _Batch(partition, values, data, starts, now)
        if await self._send(batch) == 0:
            self.findings.expect(
                Law.NO_GAP,
                self._may_be_forgotten(batch)
                or self.history.forgets(partition, self._identified_at),
                f"{self.name}: a batch behind a gap in the sequence of {partition} was appended",
            )
            await self._identify()

    async def _identify(self) -> None:
        while True:
            request = InitProducerIdRequest(transactional_id=None)
            answer = await self.ask(request, 4)
            if answer.error_code == 0:
                break
            await self.pause(0.1, 0.5)
        self.findings.expect(
            Law.NEW_IDENTITY,
            self.context.producer_ids.is_new(
                self.home.name, answer.producer_id, answer.producer_epoch
            ),
            f"producer id {answer.producer_id} was assigned twice",
        )
        self._identity = answer.producer_id, answer.producer_epoch
        self._identified_at = self.now
        self._sequences.clear()
        self._gone_back.clear()
        self._begun.clear()

    def _next(self) -> _Batch:
        partition = self.some_place(self._places)
        key = self.some_key() if self._keyed else b""
        values = self.new_values(self.rng.randint(1, 4), key=key)
        now = self.now
        self.history.will_send(
            partition,
            values,
            once=True,
            made_at=now,
            producer_id=self._identity[0],
            timestamp=self.context.simulator.wall_ms(),
        )
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        data = batch_of(self, values, (*self._identity, sequence), keyed=self._keyed)
        batch = _Batch(partition, values, data, self.context.brokers.starts, now)
        batch.begins = partition not in self._begun
        return batch

    async def _send(self, batch: _Batch) -> int:
        """Return the error code; REQUEST_TIMED_OUT without a response."""
        request = produce_request(batch.topic_partition, batch.data)
        try:
            answer = answer_of(await self.connection.call(request, _VERSION))
        except NoResponse:
            return ErrorCode.REQUEST_TIMED_OUT
        code: int = answer.error_code
        if code == 0:
            batch.acked = True
            self._begun.add(batch.topic_partition)
            self.note("acked", batch.topic_partition, answer.base_offset)
            self.history.acknowledged(batch.topic_partition, answer.base_offset, batch.values)
            if self.rng.random() < 0.05:
                await self._repeat(batch, answer.base_offset)
        return code

    async def _repeat(self, batch: _Batch, offset: int) -> None:
        """Send an acknowledged batch again, as after a lost response: it keeps its offset."""
        try:
            request = produce_request(batch.topic_partition, batch.data)
            answer = answer_of(await self.connection.call(request, _VERSION))
        except NoResponse:
            return
        if answer.error_code == 0:
            self._note_again(batch)
        if answer.error_code == 0 and not self.history.partition(batch.topic_partition).cuts:
            self.findings.expect(
                Law.SAME_BATCH,
                answer.base_offset in (offset, -1)
                or self.history.forgets(batch.topic_partition, batch.made_at),
                f"{self.name}: a batch at {offset} was appended again at {answer.base_offset}",
            )

    async def _insist(self, batch: _Batch) -> None:
        """Retry a batch that failed, in order: the broker rejected all batches behind the first."""
        while not batch.acked:
            asked_at = self.now
            code = await self._send(batch)
            if code == 0:
                self._note_again(batch)
            if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
                self.findings.expect(
                    Law.TAKEN,
                    self._may_be_forgotten(batch),
                    f"{self.name}: a batch in sequence returned {ErrorCode(code).name}",
                )
                await self._identify()
                return
            if code and code not in RETRIABLE:
                self.unexpected("Produce", code)
                return
            if code:
                self.expect_progress("Produce", code, asked_at)
                await self.pause(0.1, 0.8)

    def _note_again(self, batch: _Batch) -> None:
        """Note that a broker appended a batch after its successors."""
        if batch.followed and self.history.forgets(batch.topic_partition, self._identified_at):
            self._gone_back.add(batch.topic_partition)

    def _may_be_forgotten(self, batch: _Batch) -> bool:
        """Return whether the broker may have forgotten the batch, or its predecessor.

        A producer snapshot found at a start has only the newest batch of each producer. Where the
        producer was forgotten, a later batch may have been appended before this one. So it may
        where the producer is unknown, if that batch came on another connection (as in Kafka, an
        unknown producer begins at any sequence).
        """
        history, restarted = self.history, self.context.brokers.starts != batch.starts
        is_new = restarted or history.forgets(batch.topic_partition, self._identified_at)
        may_lead = batch.followed or batch.topic_partition in self._gone_back
        is_overtaken = batch.begins and batch.followed
        return (
            history.partition(batch.topic_partition).cuts > 0
            or (is_new and may_lead)
            or is_overtaken
        )
