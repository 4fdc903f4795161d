from __future__ import annotations

import asyncio
import itertools

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.state import TransactionVersion
from lakelog.protocol.transactions import ListTransactionsRequest
from transaction_setup import BUMPING, CLASSIC, Setup, in_virtual_time

DAY_S = 24 * 3600


@pytest.mark.parametrize(("version", "epoch"), [(CLASSIC, 1), (BUMPING, 2)])
def test_kip_664_a_transaction_is_aborted_at_its_timeout(
    version: TransactionVersion, epoch: int
) -> None:
    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        producer = await setup.ready(timeout_ms=5_000)
        await setup.add(producer, version=version)
        setup.markers.partition("orders", 0).append(producer, "late")
        await asyncio.sleep(4.9)
        assert setup.state() == "Ongoing"
        await asyncio.sleep(0.2)
        assert await setup.settled() == "CompleteAbort"
        assert setup.markers.partition("orders", 0).fates == [False]
        assert setup.identity().epoch == epoch
        ended = await setup.end(producer, commit=True, version=version)
        assert ended.code == ErrorCode.PRODUCER_FENCED

    scenario()


@in_virtual_time()
async def test_the_time_counts_from_the_first_partition(setup: Setup) -> None:
    producer = await setup.ready(timeout_ms=5_000)
    await setup.add(producer, ("orders", 0))
    await asyncio.sleep(4)
    await setup.add(producer, ("orders", 1))
    await asyncio.sleep(1.5)
    assert await setup.settled() == "CompleteAbort"


@in_virtual_time()
async def test_each_transaction_has_its_own(setup: Setup) -> None:
    producer = await setup.ready(timeout_ms=5_000)
    for _ in range(5):
        await setup.add(producer)
        await asyncio.sleep(3)
        assert (await setup.end(producer, commit=True)).code == ErrorCode.NONE
        await setup.settled()


@in_virtual_time()
async def test_the_timeout_continues_across_a_restart(setup: Setup) -> None:
    producer = await setup.ready(timeout_ms=5_000)
    await setup.add(producer)
    await asyncio.sleep(3)
    await setup.restart()
    await asyncio.sleep(2.5)
    assert await setup.settled() == "CompleteAbort"


@in_virtual_time()
async def test_a_clock_set_back_prolongs_it_by_no_more_than_itself(setup: Setup) -> None:
    producer = await setup.ready(timeout_ms=5_000)
    await setup.add(producer)
    setup.clock.leap(-100 * DAY_S * 1000)
    await setup.restart()
    await asyncio.sleep(5.5)
    assert await setup.settled() == "CompleteAbort"


@in_virtual_time()
async def test_an_abort_that_fails_is_tried_again(setup: Setup) -> None:
    producer = await setup.ready(timeout_ms=5_000)
    await setup.add(producer)
    fates = itertools.chain(["refused"] * 5, itertools.repeat("ok"))
    setup.log.fate = lambda: next(fates)
    await asyncio.sleep(6)
    assert await setup.settled() == "CompleteAbort"
    assert setup.identity().epoch == producer.epoch + 1, "one bump, not one for each try"


@in_virtual_time()
async def test_an_idle_id_is_forgotten(setup: Setup) -> None:
    producer = await setup.ready()
    await asyncio.sleep(6.9 * DAY_S)
    assert setup.state() == "Empty"
    await asyncio.sleep(0.2 * DAY_S)
    assert setup.coordinator.admin.describe("t").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert await setup.add(producer) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    await setup.restart()
    assert setup.coordinator.admin.describe("t").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (await setup.ready()).producer_id != producer.producer_id


@in_virtual_time(id_expiration_ms=1000, id_expiration_check_ms=500)
async def test_an_id_with_a_transaction_is_not_forgotten(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer)
    await asyncio.sleep(10)
    assert setup.state() == "Ongoing"


@in_virtual_time()
async def test_an_addition_whose_predecessor_failed_keeps_the_timeout(setup: Setup) -> None:
    """The second addition builds on the first one, and is written although that one was not."""
    producer = await setup.ready(timeout_ms=5_000)
    setup.log.delay_s = lambda: 1.0
    fates = itertools.chain(["refused"], itertools.repeat("ok"))
    setup.log.fate = lambda: next(fates)
    first = asyncio.ensure_future(setup.add(producer, ("orders", 0), version=BUMPING))
    await asyncio.sleep(0.5)
    assert await setup.add(producer, ("orders", 1), version=BUMPING) == ErrorCode.NONE
    assert await first == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert setup.state() == "Ongoing"
    setup.log.delay_s = lambda: 0.0
    await asyncio.sleep(5.5)
    assert setup.state() == "CompleteAbort"


@pytest.mark.parametrize("pattern", ["(", "[z-a]", r"(a)\1", "a{2000}{2000}"])
def test_a_pattern_that_is_none(pattern: str) -> None:
    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        request = ListTransactionsRequest(transactional_id_pattern=pattern)
        response = setup.coordinator.admin.list_transactions(request)
        assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    scenario()
