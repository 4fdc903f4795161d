"""Random histories of transactions, checked against the responses of their producers.

Producers of both kinds write records and offsets, die, are fenced and time out, while coordinators
restart, their logs delay, reject and lose appends, and markers are lost. When all failures have
stopped, these invariants hold: the records of a committed transaction are visible, each once and in
order; no record of an aborted one is; of a transaction with an unknown outcome, all records are or
none. No transaction is open, and no producer id and epoch was given out twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.coordinator.transaction.ids import TransactionConfig
from lakelog.coordinator.transaction.state import TransactionVersion
from lakelog.protocol.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from transaction_setup import BUMPING, CLASSIC, Producer, Setup, run

NOBODY = Producer(-1, -1)
SEEDS_EACH = 2
SEEDS_EACH_LONG = 6
STEPS = 60
IDS = ("a", "b")
PARTITIONS = 3
TIMEOUT_MS = 20_000
ANSWERED_WITHIN_S = 200
RETRIED = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
}


@dataclass
class Attempt:
    """A transaction from the view of its producer."""

    values: dict[int, list[str]] = field(default_factory=dict)
    """Acknowledged records by partition."""
    offset: int | None = None
    outcome: str = "open"
    """`committed`, `aborted`, `unknown`, or `open` without an EndTxn."""


class Given_up(Exception):  # noqa: N801, N818
    """The producer was fenced or has died."""


@dataclass
class Client:
    """A producer process that begins and ends transactions, writes, and sometimes dies."""

    model: Model
    transactional_id: str
    version: TransactionVersion
    producer: Producer = NOBODY

    async def live(self) -> None:
        try:
            await self.init()
            for _ in range(self.model.random.randint(1, 4)):
                await self.transact()
        except Given_up:
            self.model.count("given up")

    async def again(self, ask: Callable[[], Awaitable[Any]]) -> ErrorCode:
        """Send a request, and retry retriable errors as a client does."""
        for _ in range(1000):
            answer = await asyncio.wait_for(ask(), ANSWERED_WITHIN_S)
            code = getattr(answer, "code", answer)
            if code not in RETRIED:
                self.answer = answer
                assert code is ErrorCode.NONE or code in FENCED, code
                return ErrorCode(code)
            await asyncio.sleep(self.model.random.choice((0.02, 0.1, 0.5)))
        raise AssertionError("retriable errors for ever")

    async def init(self) -> None:
        setup = self.model.setup
        code = await self.again(lambda: setup.init(self.transactional_id, timeout_ms=TIMEOUT_MS))
        assert code is ErrorCode.NONE, code
        self.take(Producer(*self.answer[1:]))

    def take(self, producer: Producer) -> None:
        """Check that each identity has one producer: for a transaction (KIP-890) or its
        lifetime."""
        self.model.check_new(self.transactional_id, producer)
        self.producer = producer

    async def transact(self) -> None:
        attempt = Attempt()
        self.model.attempts.append(attempt)
        chance = self.model.random
        for _ in range(chance.randint(1, 4)):
            await self.write(attempt, chance.randrange(PARTITIONS))
            await asyncio.sleep(chance.choice((0, 0, 0.1, 1, 30 if chance.random() < 0.1 else 0)))
        if chance.random() < 0.4:
            await self.commit_offset(attempt)
        if chance.random() < 0.1:
            raise Given_up
        await self.end(attempt, commit=chance.random() < 0.7)

    async def write(self, attempt: Attempt, index: int) -> None:
        """Write as a Produce request: verify it if the partition has no open transaction."""
        setup = self.model.setup
        partition = setup.markers.partition("orders", index)
        key = ("orders", index)
        if self.version is CLASSIC:
            await self.add(key)
        value = self.model.next_value()
        while True:
            if partition.needs_verification(self.producer):
                await self.verify(key, add=self.version is BUMPING)
            if not partition.needs_verification(self.producer) or await self.still_verified(key):
                break
        try:
            partition.append(self.producer, value)
        except KafkaError:
            raise Given_up from None
        attempt.values.setdefault(index, []).append(value)

    async def still_verified(self, key: tuple[str, int]) -> bool:
        """Verify without waiting directly before the append."""
        codes = self.model.setup.coordinator.verify(
            self.transactional_id, *self.producer, [key], add=False
        )
        return codes.result()[key] is ErrorCode.NONE

    async def add(self, key: tuple[str, int]) -> None:
        setup = self.model.setup
        code = await self.again(
            lambda: setup.add(self.producer, key, transactional_id=self.transactional_id)
        )
        if code is not ErrorCode.NONE:
            raise Given_up

    async def verify(self, key: tuple[str, int], *, add: bool) -> None:
        async def ask() -> ErrorCode:
            codes = await self.model.setup.coordinator.verify(
                self.transactional_id, *self.producer, [key], add=add
            )
            return codes[key]

        if await self.again(ask) is not ErrorCode.NONE:
            raise Given_up

    async def commit_offset(self, attempt: Attempt) -> None:
        setup = self.model.setup
        key = (GROUP_TOPIC, 0)
        if self.version is CLASSIC:
            await self.add(key)
        offset = self.model.next_offset()

        async def ask() -> ErrorCode:
            codes = await setup.coordinator.verify(
                self.transactional_id, *self.producer, [key], add=self.version is BUMPING
            )
            if codes[key] is not ErrorCode.NONE:
                return codes[key]
            response = await setup.groups.txn_offset_commit(self.offsets(offset), 5)
            return ErrorCode(response.topics[0].partitions[0].error_code)

        # Records of an attempt with an unknown outcome may become visible with a later end.
        self.model.possible.add(offset)
        if await self.again(ask) is not ErrorCode.NONE:
            raise Given_up
        attempt.offset = offset

    def offsets(self, offset: int) -> TxnOffsetCommitRequest:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=IDS.index(self.transactional_id),
            committed_offset=offset,
            committed_metadata="",
        )
        topic = TxnOffsetCommitRequestTopic(name="orders", partitions=[partition])
        return TxnOffsetCommitRequest(
            group_id="g",
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            topics=[topic],
        )

    async def end(self, attempt: Attempt, *, commit: bool) -> None:
        setup = self.model.setup
        attempt.outcome = "unknown"
        code = await self.again(
            lambda: setup.end(
                self.producer,
                commit=commit,
                transactional_id=self.transactional_id,
                version=self.version,
            )
        )
        if code is not ErrorCode.NONE:
            # Without KIP-890 a retry may find the next state; the first attempt may have succeeded.
            raise Given_up
        attempt.outcome = "committed" if commit else "aborted"
        self.model.count(attempt.outcome)
        if self.version is BUMPING:
            self.take(Producer(*self.answer[1:]))


@dataclass
class Model:
    setup: Setup
    random: random.Random
    attempts: list[Attempt] = field(default_factory=list)
    possible: set[int] = field(default_factory=set)
    given: dict[int, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    values: int = 0

    def count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    def next_value(self) -> str:
        self.values += 1
        return f"v{self.values}"

    def next_offset(self) -> int:
        self.values += 1
        return self.values

    def check_new(self, transactional_id: str, producer: Producer) -> None:
        before = self.given.get(producer.producer_id, -1)
        assert producer.epoch > before, f"{transactional_id}: {producer} after {before}"
        self.given[producer.producer_id] = producer.epoch

    async def settle(self) -> None:
        """Stop all failures, and wait longer than any timeout."""
        for log in (self.setup.log, self.setup.group_log):
            log.fate = lambda: "ok"
        self.setup.markers.fate = lambda: "ok"
        await asyncio.sleep(TIMEOUT_MS / 1000 + 60)
        await self.setup.restart()
        await asyncio.sleep(30)

    def check(self) -> None:
        for transactional_id in IDS:
            state = self.setup.state(transactional_id)
            assert state in ("Empty", "CompleteCommit", "CompleteAbort"), "stuck"
        for index in range(PARTITIONS):
            partition = self.setup.markers.partition("orders", index)
            assert partition.is_stable, "a transaction is left open"
            visible = partition.visible
            assert len(visible) == len(set(visible))
            for attempt in self.attempts:
                self.check_attempt(attempt, index, visible)
        for attempt in self.attempts:
            shown = {
                value in self.setup.markers.partition("orders", index).visible
                for index, values in attempt.values.items()
                for value in values
            }
            assert len(shown) <= 1, f"torn: {attempt}"

    def check_attempt(self, attempt: Attempt, index: int, visible: list[str]) -> None:
        wrote = attempt.values.get(index, [])
        shown = [value for value in visible if value in wrote]
        if attempt.outcome == "committed":
            assert shown == wrote, attempt
        elif attempt.outcome in ("aborted", "open"):
            assert not shown, attempt

    async def check_offsets(self) -> None:
        """Return the newest offset of a transaction that is committed or has an unknown
        outcome."""
        for partition, _ in enumerate(IDS):
            wanted = OffsetFetchRequestTopics(name="orders", partition_indexes=[partition])
            group = OffsetFetchRequestGroup(group_id="g", topics=[wanted])
            request = OffsetFetchRequest(groups=[group], require_stable=True)
            response = await self.setup.groups.offset_fetch(request, 9)
            found = response.groups[0].topics[0].partitions[0]
            assert found.error_code == 0, "an offset is left unstable"
            aborted = {each.offset for each in self.attempts if each.outcome in ("aborted", "open")}
            assert found.committed_offset in {-1, *self.possible} - aborted


async def _play(setup: Setup, seed: int) -> dict[str, int]:
    source = random.Random(seed)
    model = Model(setup, source)
    fates = ("ok", "refused", "lost", "kept")
    for log in (setup.log, setup.group_log):
        log.delay_s = lambda: source.choice((0.0, 0.0, 0.01, 0.2, 1.0))
        log.fate = lambda: source.choices(fates, (91, 3, 3, 3))[0]
    setup.markers.delay_s = lambda: source.choice((0.0, 0.01, 0.5))
    setup.markers.fate = lambda: source.choices(("ok", "lost", "kept"), (80, 10, 10))[0]
    tasks: set[asyncio.Task[None]] = set()
    for _ in range(STEPS):
        await asyncio.sleep(source.choice((0.1, 1, 3, 8)))
        if source.random() < 0.05:
            await setup.restart()
            model.count("restarted")
        if len([task for task in tasks if not task.done()]) < 3:
            client = Client(model, source.choice(IDS), source.choice((CLASSIC, BUMPING)))
            tasks.add(asyncio.ensure_future(client.live()))
    await asyncio.wait(tasks, timeout=1000)
    for task in tasks:
        assert task.done(), "a producer waits for ever"
        task.result()
    await model.settle()
    model.check()
    await model.check_offsets()
    return model.done


@pytest.mark.histories
@pytest.mark.parametrize("first", range(0, 2 * SEEDS_EACH_LONG, SEEDS_EACH_LONG))
def test_random_histories(first: int, is_long: bool) -> None:
    seeds = SEEDS_EACH_LONG if is_long else SEEDS_EACH
    config = TransactionConfig(partitions=2)
    done: dict[str, int] = {}
    for seed in range(first, first + seeds):

        async def scenario(setup: Setup, seed: int = seed) -> dict[str, int]:
            try:
                return await _play(setup, seed)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error

        for what, count in run(scenario, config, seed).items():
            done[what] = done.get(what, 0) + count
    for what in ("committed", "aborted", "given up", "restarted"):
        assert done.get(what, 0) > seeds, f"hardly anything happened: {done}"
