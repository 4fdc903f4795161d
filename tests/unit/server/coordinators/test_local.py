"""The events of the broker that its coordinators follow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.init_producer_id import InitProducerIdRequest
from lakelog.storage.folder.ownership import CLEAN_SHUTDOWN
from lakelog.storage.folder.page_cache import BOOT_ID
from socketless_broker import SocketlessBroker


async def initialise(data: Path, durability: str, seed: int) -> int:
    """The producer id that a client is given by a broker that is started for it and stopped."""
    settings = {"log_durability": durability, "transaction_state_log_num_partitions": "1"}
    broker = SocketlessBroker(data, seed=seed, settings=settings)
    await broker.start()
    try:
        await broker.server.broker.topics.ensure_transaction_topic()
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        answer = await broker.server.broker.transactions.init_producer_id(request)
        assert answer.code is ErrorCode.NONE
        producer_id: int = answer.producer_id
        return producer_id
    finally:
        await broker.stop()


@pytest.mark.parametrize("durability", ["page-cache", "fsync"])
@pytest.mark.parametrize(
    ("left", "keeps"),
    [
        ((CLEAN_SHUTDOWN, BOOT_ID), True),
        ((CLEAN_SHUTDOWN,), True),
        ((BOOT_ID,), True),
        ((), False),
    ],
    ids=["clean", "clean before a boot", "kill", "power failure"],
)
def test_transactional_producers_get_new_ids_where_epochs_may_be_lost(
    tmp_path: Path, left: tuple[str, ...], keeps: bool, durability: str
) -> None:
    """With any durability: it may have been changed since the power failure."""

    async def scenario() -> None:
        first = await initialise(tmp_path, "page-cache", 1)
        for name in {CLEAN_SHUTDOWN, BOOT_ID}.difference(left):
            (tmp_path / name).unlink()
        assert (await initialise(tmp_path, durability, 2) == first) is keeps

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_so_they_do_when_the_broker_was_stopped_cleanly_before_they_came(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = await initialise(tmp_path, "page-cache", 1)
        (tmp_path / CLEAN_SHUTDOWN).unlink()
        (tmp_path / BOOT_ID).unlink()
        for seed in (2, 3):
            idle = SocketlessBroker(tmp_path, seed=seed)
            await idle.start()
            await idle.stop()
        assert await initialise(tmp_path, "page-cache", 4) != first

    asyncio.run(asyncio.wait_for(scenario(), 120))
