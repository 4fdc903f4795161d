"""Timeouts of transactions and expiry of transactional ids."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.state import TransactionVersion
from transaction_world import BUMPING, CLASSIC, World, in_world

DAY_S = 24 * 3600


@pytest.mark.parametrize(("version", "epoch"), [(CLASSIC, 1), (BUMPING, 2)])
def test_kip_664_a_transaction_is_aborted_at_its_timeout(
    version: TransactionVersion, epoch: int
) -> None:
    @in_world()
    async def scenario(world: World) -> None:
        producer = await world.ready(timeout_ms=5_000)
        await world.add(producer, version=version)
        world.markers.partition("orders", 0).append(producer, "late")
        await asyncio.sleep(4.9)
        assert world.state() == "Ongoing"
        await asyncio.sleep(0.2)
        assert await world.settled() == "CompleteAbort"
        assert world.markers.partition("orders", 0).fates == [False]
        assert world.identity().epoch == epoch
        ended = await world.end(producer, commit=True, version=version)
        assert ended.code == ErrorCode.PRODUCER_FENCED

    scenario()


@in_world()
async def test_the_time_counts_from_the_first_partition(world: World) -> None:
    producer = await world.ready(timeout_ms=5_000)
    await world.add(producer, ("orders", 0))
    await asyncio.sleep(4)
    await world.add(producer, ("orders", 1))
    await asyncio.sleep(1.5)
    assert await world.settled() == "CompleteAbort"


@in_world()
async def test_each_transaction_has_its_own(world: World) -> None:
    producer = await world.ready(timeout_ms=5_000)
    for _ in range(5):
        await world.add(producer)
        await asyncio.sleep(3)
        assert (await world.end(producer, commit=True)).code == ErrorCode.NONE
        await world.settled()


@in_world()
async def test_the_timeout_continues_across_a_restart(world: World) -> None:
    producer = await world.ready(timeout_ms=5_000)
    await world.add(producer)
    await asyncio.sleep(3)
    await world.restart()
    await asyncio.sleep(2.5)
    assert await world.settled() == "CompleteAbort"


@in_world()
async def test_a_clock_set_back_prolongs_it_by_no_more_than_itself(world: World) -> None:
    producer = await world.ready(timeout_ms=5_000)
    await world.add(producer)
    world.clock.leap(-100 * DAY_S * 1000)
    await world.restart()
    await asyncio.sleep(5.5)
    assert await world.settled() == "CompleteAbort"


@in_world()
async def test_an_abort_that_fails_is_tried_again(world: World) -> None:
    producer = await world.ready(timeout_ms=5_000)
    await world.add(producer)
    fates = itertools.chain(["refused"] * 5, itertools.repeat("ok"))
    world.log.fate = lambda: next(fates)
    await asyncio.sleep(6)
    assert await world.settled() == "CompleteAbort"
    assert world.identity().epoch == producer.epoch + 1, "one bump, not one for each try"


@in_world()
async def test_an_idle_id_is_forgotten(world: World) -> None:
    producer = await world.ready()
    await asyncio.sleep(6.9 * DAY_S)
    assert world.state() == "Empty"
    await asyncio.sleep(0.2 * DAY_S)
    assert world.coordinator.admin.describe("t").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert await world.add(producer) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    await world.restart()
    assert world.coordinator.admin.describe("t").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (await world.ready()).producer_id != producer.producer_id


@in_world(id_expiration_ms=1000, id_expiration_check_ms=500)
async def test_an_id_with_a_transaction_is_not_forgotten(world: World) -> None:
    producer = await world.ready()
    await world.add(producer)
    await asyncio.sleep(10)
    assert world.state() == "Ongoing"
