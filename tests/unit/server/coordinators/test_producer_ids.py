from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.runtime.aio import AsyncioTasks
from lakelog.server.coordinators.producer_ids import ProducerIds


class Blocks:
    """The metadata log, which reserves blocks of three ids, or fails."""

    def __init__(self) -> None:
        self.reserved = 0
        self.fails = False
        self.forgotten_end = 0

    async def reserve(self) -> range:
        await asyncio.sleep(0)
        if self.fails:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        self.reserved += 1
        return range(self.reserved * 3 - 3, self.reserved * 3)


def run(scenario: Callable[[ProducerIds, Blocks], Awaitable[None]]) -> None:
    async def main() -> None:
        tasks, blocks = AsyncioTasks(asyncio.get_running_loop()), Blocks()
        await scenario(ProducerIds(blocks.reserve, tasks, lambda: blocks.forgotten_end), blocks)
        tasks.close()

    asyncio.run(main())


def test_callers_that_wait_together_share_a_block_and_get_ids_in_order() -> None:
    async def scenario(ids: ProducerIds, blocks: Blocks) -> None:
        assert await asyncio.gather(*(ids.next() for _ in range(5))) == [0, 1, 2, 3, 4]
        assert blocks.reserved == 2
        assert await ids.next() == 5

    run(scenario)


def test_a_failed_reservation_fails_its_callers_and_no_later_one() -> None:
    async def scenario(ids: ProducerIds, blocks: Blocks) -> None:
        blocks.fails = True
        for found in await asyncio.gather(ids.next(), ids.next(), return_exceptions=True):
            assert isinstance(found, KafkaError)
        with pytest.raises(KafkaError):
            await ids.next()
        blocks.fails = False
        assert await ids.next() == 0

    run(scenario)


def test_ids_whose_epochs_may_be_forgotten_are_not_assigned() -> None:
    async def scenario(ids: ProducerIds, blocks: Blocks) -> None:
        assert await ids.next() == 0
        blocks.forgotten_end = 2
        assert await ids.next() == 2
        assert blocks.reserved == 1
        blocks.forgotten_end = 7
        assert await ids.next() == 7

    run(scenario)
