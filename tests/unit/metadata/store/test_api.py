"""The process that holds a term of the controller.

A metadata store without reserved space.
"""

from __future__ import annotations

import asyncio

import pytest

from doubles.randomness import SeededRandom
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.brokers import plan_producer_ids
from lakelog.metadata.errors import MetadataFull
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.plan import Plan
from lakelog.metadata.store.api import ControllerTerm, UnreservedSpace
from lakelog.runtime.aio import AsyncioTasks
from memory_metadata import MemoryMetadata


def test_a_term_is_held_by_the_process_that_took_it() -> None:
    term = ControllerTerm(1, 5, b"a" * 16)
    assert term.is_held({1: b"a" * 16})
    assert not term.is_held({1: b"b" * 16}), "another process of the broker"
    assert not term.is_held({2: b"a" * 16})
    assert not ControllerTerm(-1, 0).is_held({1: b"a" * 16})


def test_a_term_without_a_recorded_process_is_held_by_any_of_its_broker() -> None:
    assert ControllerTerm(1, 5).is_held({1: b"b" * 16})


def _next_ids(image: MetadataImage) -> Plan[range]:
    return plan_producer_ids(image, 1)


@pytest.mark.parametrize("from_reserve", [True, False])
def test_a_change_on_a_full_device_fails_at_once_and_later_ones_succeed(from_reserve: bool) -> None:
    """There is no reserve to free, so the change is not repeated."""

    async def scenario() -> None:
        tasks, store = AsyncioTasks(asyncio.get_running_loop()), MemoryMetadata()
        log = MetadataLog(store, tasks, SeededRandom(1), broker_id=1, space=UnreservedSpace())
        await log.open(create=True)
        store.fault = MetadataFull("no space")
        with pytest.raises(KafkaError, match="no space") as error:
            await log.submit(_next_ids, from_reserve=from_reserve)
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        store.fault = None
        assert await log.submit(_next_ids, from_reserve=from_reserve) == range(1000)
        await log.close()
        tasks.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
