"""Hanging transactions are ended and logged when the broker starts."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.protocol.producers import InitProducerIdRequest
from lakelog.storage.folder.ownership import CLEAN_SHUTDOWN
from lakelog.storage.log import Log
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
