"""Hanging transactions are ended and logged when the broker starts."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.protocol.transactions import DescribedTransaction, InitProducerIdRequest, TopicData
from lakelog.server.coordinators.hanging_transactions import HangingWatch
from lakelog.storage.folder.ownership import CLEAN_SHUTDOWN
from lakelog.storage.log import Log
from memory_broker import MemoryBroker
from socketless_broker import SocketlessBroker
from storage_kit import NOW, make_batch
from waiting import until

SETTINGS = {
    "transaction_state_log_num_partitions": "1",
    "offsets_topic_num_partitions": "1",
}


def log_of(broker: SocketlessBroker, topic: str) -> Log:
    return broker.server.broker.partitions.leader(topic, 0).log


def append(log: Log, producer: tuple[int, int]) -> None:
    verification = log.producers.start_verification(*producer, 0, NOW, supports_epoch_bump=False)
    batch = make_batch(1, producer=(*producer, 0), transactional=True)
    log.append(batch, leader_epoch=0, now_ms=NOW, verification=verification)


async def began(data: Path) -> int:
    """A broker that stops with transactions of a known and of an unknown producer id open."""
    broker = SocketlessBroker(data, seed=1, settings=SETTINGS)
    await broker.start()
    await broker.create_topic("t")
    topics: Any = broker.server.broker.topics
    await topics.ensure_transaction_topic()
    await topics.ensure_group_topic()
    request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    answer = await broker.server.broker.transactions.init_producer_id(request)
    for log in (log_of(broker, "t"), log_of(broker, GROUP_TOPIC)):
        append(log, (answer.producer_id, answer.producer_epoch))
        append(log, (4711, 3))
    await broker.stop()
    producer_id: int = answer.producer_id
    return producer_id


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("durability", ["page-cache", "fsync"])
def test_it_is_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clean: bool, durability: str
) -> None:
    async def scenario() -> None:
        producer_id = await began(tmp_path)
        if not clean:
            (tmp_path / CLEAN_SHUTDOWN).unlink()
        settings = SETTINGS | {"log_durability": durability}
        broker = SocketlessBroker(tmp_path, seed=2, settings=settings)
        with caplog.at_level(logging.WARNING):
            await broker.start()
            logs = [log_of(broker, "t"), log_of(broker, GROUP_TOPIC)]
            await until(lambda: all(log.last_stable_offset == log.log_end_offset for log in logs))
            await broker.stop()
        assert broker.server.broker.transactions.hanging_found == 4
        for owner in (f"producer id {producer_id}, epoch 0", "producer id 4711, epoch 3"):
            assert f"t-0: a transaction hangs, of {owner}" in caplog.text
        for log in logs:
            assert not log.producers.is_in_transaction(4711, 3)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_marker_that_finds_no_space_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakelog.server.coordinators.hanging_transactions._RETRY_S", 0.01)
    refusals = iter([True] * 6)
    append_marker = Log.append_marker

    def full_at_first(log: Log, *arguments: Any, **named: Any) -> tuple[int, int]:
        if next(refusals, False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return append_marker(log, *arguments, **named)

    async def scenario() -> None:
        await began(tmp_path)
        monkeypatch.setattr(Log, "append_marker", full_at_first)
        broker = SocketlessBroker(tmp_path, seed=2, settings=SETTINGS)
        with caplog.at_level(logging.WARNING):
            await broker.start()
            logs = [log_of(broker, "t"), log_of(broker, GROUP_TOPIC)]
            await until(lambda: not any(log.producers.is_in_transaction(4711, 3) for log in logs))
            await broker.stop()
        assert "t-0: a transaction hangs, of producer id 4711, epoch 3" in caplog.text
        assert "it cannot be ended: KAFKA_STORAGE_ERROR" in caplog.text

    asyncio.run(asyncio.wait_for(scenario(), 60))


E = ErrorCode
PRODUCER = (50, 3)


class Coordinators:
    """All coordinators, which know `states` by producer id, or do not answer."""

    def __init__(self) -> None:
        self.states: dict[int, DescribedTransaction] = {}
        self.failure: KafkaError | None = None
        self.asked: list[set[int]] = []
        self.fenced: list[str] = []
        self.during: Callable[[], object] = tuple

    async def of(self, producer_ids: Collection[int]) -> dict[int, DescribedTransaction]:
        self.asked.append(set(producer_ids))
        self.during()
        if self.failure is not None:
            raise self.failure
        return self.states

    async def fence(self, known: DescribedTransaction) -> None:
        self.fenced.append(known.transactional_id)
        known.producer_epoch += 1


def know(state: str, epoch: int, *partitions: int) -> DescribedTransaction:
    return DescribedTransaction(
        transactional_id="id",
        transaction_state=state,
        producer_id=PRODUCER[0],
        producer_epoch=epoch,
        topics=[TopicData(topic="orders", partitions=list(partitions))],
    )


class Watched:
    """A broker with a transaction open in `orders`-0, and its watch."""

    def __init__(self, world: MemoryBroker) -> None:
        self.world = world
        self.coordinators = Coordinators()
        broker = world.broker
        known: Any = self.coordinators
        self.watch = HangingWatch(
            broker.partitions, known, broker.transactions, broker.markers, world.tasks
        )
        self.open()

    def open(self, topic: str = "orders", producer: tuple[int, int] = PRODUCER) -> None:
        partition = self.world.partition(topic)
        now_ms = self.world.clock.wall_ms()
        verification = partition.log.producers.start_verification(
            *producer, 0, now_ms, supports_epoch_bump=False
        )
        batch = make_batch(1, producer=(*producer, 0), transactional=True)
        partition.append(batch, now_ms, verification=verification)

    def is_open(self, topic: str = "orders", producer: tuple[int, int] = PRODUCER) -> bool:
        return self.world.partition(topic).log.producers.is_in_transaction(*producer)

    def look(self, seconds: float = 3.0) -> None:
        self.watch.look(self.world.broker.partitions)
        self.world.pass_time(seconds)


@pytest.fixture
def watched(coordinators: MemoryBroker) -> Watched:
    return Watched(coordinators)


def test_a_transaction_that_no_coordinator_knows_is_aborted(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.open(GROUP_TOPIC)
    with caplog.at_level(logging.WARNING):
        watched.look()
    assert not watched.is_open()
    assert not watched.is_open(GROUP_TOPIC)
    assert watched.coordinators.asked == [{PRODUCER[0]}]
    assert watched.world.broker.transactions.hanging_found == 2
    assert "orders-0: a transaction hangs, of producer id 50, epoch 3, from offset 0" in caplog.text
    log = watched.world.partition("orders").log
    assert log.segments.has_aborted, "its records are aborted, not committed"


def test_a_transaction_that_its_coordinator_ends_stays_open(watched: Watched) -> None:
    watched.coordinators.states = {50: know("Ongoing", 3, 0)}
    watched.look(300)
    assert watched.is_open()
    assert 4 < len(watched.coordinators.asked) < 12, "the pauses grow"


def test_a_transaction_that_its_coordinator_forgets_later_is_aborted(watched: Watched) -> None:
    watched.coordinators.states = {50: know("Ongoing", 3, 0)}
    watched.look(100)
    watched.coordinators.states = {}
    watched.world.pass_time(60)
    assert not watched.is_open()


def test_nothing_is_asked_about_transactions_that_end_soon(watched: Watched) -> None:
    watched.look(1)
    partition = watched.world.partition("orders")
    partition.append_marker(*PRODUCER, True, 0, 0, transaction_version=0)
    watched.world.pass_time(100)
    assert watched.coordinators.asked == []


def test_without_all_answers_nothing_is_aborted(watched: Watched) -> None:
    watched.coordinators.failure = KafkaError(E.NOT_COORDINATOR)
    watched.look(100)
    assert watched.is_open()
    watched.coordinators.failure = None
    watched.world.pass_time(60)
    assert not watched.is_open()


def test_another_transaction_of_the_producer_is_not_aborted(watched: Watched) -> None:
    """It began while the coordinators were asked about the one before it."""

    def next_transaction() -> None:
        partition = watched.world.partition("orders")
        partition.append_marker(*PRODUCER, True, 0, 0, transaction_version=0)
        watched.open(producer=(50, 4))

    watched.coordinators.during = next_transaction
    watched.look(100)
    assert watched.is_open(producer=(50, 4))
    assert len(watched.coordinators.asked) == 1


def test_an_answer_that_an_election_has_outdated_counts_for_nothing(watched: Watched) -> None:
    partition = watched.world.partition("orders")

    def elected_again() -> None:
        role = partition.role._replace(leader_epoch=partition.leader_epoch + 1)
        partition.assume(role, watched.world.clock.monotonic_ms())

    watched.coordinators.during = elected_again
    watched.look()
    assert watched.is_open()
    watched.coordinators.during = tuple
    watched.look()
    assert not watched.is_open()


def test_a_producer_that_could_commit_the_rest_is_fenced_first(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.coordinators.states = {50: know("Empty", 2)}
    with caplog.at_level(logging.WARNING):
        watched.look(60)
    assert watched.coordinators.fenced == ["id", "id"], "until its epoch is above that of records"
    assert not watched.is_open()
    assert caplog.text.count("coordinator of id is to abort it") == 1


def test_a_marker_that_cannot_be_written_is_tried_again(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.world.broker.partitions.leader("orders", 0).role = watched.world.partition(
        "orders"
    ).role._replace(isr=())
    with caplog.at_level(logging.WARNING):
        watched.look(100)
        assert watched.is_open()
        assert caplog.text.count("it cannot be ended: NOT_ENOUGH_REPLICAS") == 1
        partition = watched.world.partition("orders")
        partition.role = partition.role._replace(isr=(1,))
        watched.world.pass_time(60)
    assert not watched.is_open()


def test_the_watch_continues_after_a_bug(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise AssertionError("planted")

    watched.coordinators.during = fail
    watched.look(20)
    assert len(watched.coordinators.asked) > 1
    assert [each.__dict__.get("event") for each in caplog.records] == ["task_failed"]
    watched.coordinators.during = tuple
    watched.world.pass_time(60)
    assert not watched.is_open()


def test_a_closed_watch_asks_nothing(watched: Watched) -> None:
    watched.look(1)
    watched.watch.close()
    watched.world.pass_time(100)
    assert watched.coordinators.asked == []


def test_a_new_suspect_ends_a_long_pause(watched: Watched) -> None:
    watched.coordinators.states = {50: know("Ongoing", 3, 0)}
    watched.look(200)
    watched.open(producer=(60, 0), topic=GROUP_TOPIC)
    watched.look(5)
    assert not watched.is_open(GROUP_TOPIC, (60, 0))
    assert watched.is_open()
