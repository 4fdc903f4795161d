"""Sinks of a coordinator in virtual time: requests as the client library sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.client.sink import QueryRun, Receipt, RecordCount, requests
from lakelog.coordinator.transaction.state import TopicPartition
from lakelog.protocol.commit_sets import NO_BATCH, Refusal, Winner
from lakelog.protocol.transactions import EndTxnResponse, InitProducerIdResponse
from transaction_setup import BUMPING, Producer, Setup
from waiting import until

R = TypeVar("R", InitProducerIdResponse, EndTxnResponse)

TIMEOUT_MS = 60_000
ORDERS = ("orders", 0)


class Sinks:
    """The client of one sink id, without retries except for `again`."""

    def __init__(self, setup: Setup, sink_id: str = "daily", query_id: str = "query") -> None:
        self.setup = setup
        self.sink_id = sink_id
        self.query_id = query_id

    async def begin(
        self, run_id: str = "run-1", batch: int | None = None, *, expires: bool = False
    ) -> InitProducerIdResponse:
        """Begin a run, by default at the next batch."""
        if batch is None:
            batch = max(self.known_next_batch, 0)
        request = requests.begin_run(self.sink_id, self.query_id, run_id, batch, expires=expires)
        return await self.setup.coordinator.sinks.initialise(request)

    async def begun(self, run_id: str = "run-1") -> Producer:
        answer = await again(lambda: self.begin(run_id))
        assert answer.error_code == 0, answer
        return Producer(answer.producer_id, answer.producer_epoch)

    def name(self, batch: int, partition: int = 0, attempt: int = 0) -> str:
        return f"{self.sink_id}/{batch}/{partition}/{attempt}"

    async def open(
        self, parent: Producer, name: str, timeout_ms: int = TIMEOUT_MS
    ) -> InitProducerIdResponse:
        request = requests.open_child(self._run(parent), name, timeout_ms)
        return await self.setup.coordinator.sinks.initialise(request)

    async def opened(self, parent: Producer, name: str, timeout_ms: int = TIMEOUT_MS) -> Producer:
        answer = await again(lambda: self.open(parent, name, timeout_ms))
        assert answer.error_code == 0, answer
        return Producer(answer.producer_id, answer.producer_epoch)

    async def write(
        self, name: str, child: Producer, value: str, partition: TopicPartition = ORDERS
    ) -> ErrorCode:
        """Write a record as a Produce request: verify first if the partition has no transaction."""
        model = self.setup.markers.partition(*partition)
        while model.needs_verification(child):
            codes = await self.setup.coordinator.verify(name, *child, [partition], add=True)
            code = codes[partition]
            if code is not ErrorCode.NONE and not code.retriable:
                return ErrorCode(code)
            again = await self.setup.coordinator.verify(name, *child, [partition], add=False)
            if again[partition] is ErrorCode.NONE:
                break
            await asyncio.sleep(0.02)
        try:
            model.append(child, value)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    async def task(
        self, parent: Producer, name: str, *values: str, partition: TopicPartition = ORDERS
    ) -> Winner:
        """Write a whole task; return its receipt."""
        child = await self.opened(parent, name)
        for value in values:
            assert await self.write(name, child, value, partition) is ErrorCode.NONE
        return winner(name, child, {partition: len(values)} if values else {})

    async def end(
        self,
        parent: Producer,
        batch: int,
        winners: Iterable[Winner] = (),
        *,
        commit: bool = True,
        run_id: str = "run-1",
    ) -> EndTxnResponse:
        run = self._run(parent, run_id)
        request = requests.end_batch(run, batch, winners, commit=commit)
        return await self.setup.coordinator.sinks.end(request)

    async def ended(
        self, parent: Producer, batch: int, winners: Iterable[Winner] = (), run_id: str = "run-1"
    ) -> EndTxnResponse:
        rows = [*winners]
        return await again(lambda: self.end(parent, batch, rows, run_id=run_id))

    async def remove(self) -> EndTxnResponse:
        return await self.setup.coordinator.sinks.end(requests.remove_sink(self.sink_id))

    def _run(self, parent: Producer, run_id: str = "run-1") -> QueryRun:
        return QueryRun(self.sink_id, self.query_id, run_id, *parent)

    @property
    def known_next_batch(self) -> int:
        """The next batch, also of a sink that does not exist."""
        try:
            found = self.setup.coordinator.admin.describe(self.sink_id).sink
        except KafkaError:
            return NO_BATCH
        return NO_BATCH if found is None else found.next_batch

    @property
    def next_batch(self) -> int:
        found = self.setup.coordinator.admin.describe(self.sink_id).sink
        assert found is not None
        return found.next_batch

    async def stable(self) -> list[str]:
        """Wait until no transaction is open in the partitions; return the visible records."""
        markers = self.setup.markers
        await until(
            lambda: all(each.is_stable for each in markers.partitions.values()), 200.0, every_s=0.5
        )
        keys = sorted(markers.partitions)
        return [value for key in keys for value in markers.partitions[key].visible]


def winner(name: str, child: Producer, counts: dict[TopicPartition, int]) -> Winner:
    written = tuple(RecordCount(*written_to, records) for written_to, records in counts.items())
    return requests.winner(Receipt(name, *child, written))


async def again(ask: Callable[[], Awaitable[R]]) -> R:
    """Repeat a request while its error is retriable, as the client does."""

    async def final() -> R | None:
        answer = await ask()
        return None if ErrorCode(answer.error_code).retriable else answer

    return await until(final, 1000.0, "no retriable error", every_s=0.05)


def reason(answer: InitProducerIdResponse | EndTxnResponse) -> Refusal | None:
    """Return the reason of a refusal, None for success."""
    if answer.refused is None:
        assert answer.error_code == 0, answer
        return None
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE
    assert answer.refused.message
    return Refusal(answer.refused.reason)


__all__ = ["BUMPING", "ORDERS", "Producer", "Setup", "Sinks", "again", "reason", "winner"]
