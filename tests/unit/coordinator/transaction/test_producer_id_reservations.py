from __future__ import annotations

import asyncio

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.producers import ProducerReply
from lakelog.coordinator.transaction.state import EPOCH_LAST
from transaction_setup import BUMPING, Producer, Setup, in_virtual_time


async def with_a_new_id_at_the_last_epoch(
    setup: Setup,
) -> tuple[Producer, ProducerReply]:
    """Return a transaction whose end replaced the producer id, continuing at the last epoch."""
    producer = await setup.with_epoch(EPOCH_LAST - 1)
    setup.lose_power()
    await setup.restart()
    assert await setup.add(producer, version=BUMPING) == ErrorCode.NONE
    answer = await setup.end(producer, commit=True, version=BUMPING)
    assert answer.code == ErrorCode.NONE
    await setup.settled()
    return producer, answer


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_retry_takes_no_further_producer_id(loses_power: bool) -> None:
    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        producer, first = await with_a_new_id_at_the_last_epoch(setup)
        assert first.producer_id != producer.producer_id
        if loses_power:
            setup.lose_power()
            await setup.restart()
        taken = setup.producer_ids
        for _ in range(3):
            assert await setup.end(producer, commit=True, version=BUMPING) == first
        assert setup.producer_ids == taken

    scenario()


@in_virtual_time()
async def test_a_rejected_end_reserves_no_producer_id(setup: Setup) -> None:
    _, answer = await with_a_new_id_at_the_last_epoch(setup)
    fresh = Producer(answer.producer_id, answer.producer_epoch)
    assert await setup.add(fresh, version=BUMPING) == ErrorCode.NONE
    taken = setup.producer_ids
    old = Producer(fresh.producer_id, 3)
    assert (await setup.end(old, commit=True, version=BUMPING)).code == ErrorCode.PRODUCER_FENCED
    assert setup.producer_ids == taken


@in_virtual_time()
async def test_repeated_requests_reserve_one_producer_id(setup: Setup) -> None:
    _, answer = await with_a_new_id_at_the_last_epoch(setup)
    fresh = Producer(answer.producer_id, answer.producer_epoch)
    assert await setup.add(fresh, version=BUMPING) == ErrorCode.NONE
    taken = setup.producer_ids
    asked = [setup.end(fresh, commit=True, version=BUMPING) for _ in range(5)]
    first, *others = await asyncio.gather(*asked)
    assert first.code == ErrorCode.NONE
    assert {each.code for each in others} == {ErrorCode.CONCURRENT_TRANSACTIONS}
    assert setup.producer_ids == taken + 1
    await setup.settled()
    assert await setup.end(fresh, commit=True, version=BUMPING) == first


@in_virtual_time(ids_max=1)
async def test_one_transactional_id_too_many_reserves_no_producer_id(
    setup: Setup,
) -> None:
    await setup.ready()
    assert (await setup.init("other")).code == ErrorCode.POLICY_VIOLATION
    assert setup.producer_ids == 1


def test_all_waiting_requests_are_refused_after_a_bug(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Setup) -> int:
        raise RuntimeError("planted")

    monkeypatch.setattr(Setup, "next_producer_id", fail)

    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        answers = await asyncio.gather(setup.init("new"), setup.init("new"))
        assert [answer.code for answer in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2

    scenario()
    bugs = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.__dict__.get("event") for record in bugs] == ["coordinator_failed"]


@in_virtual_time()
async def test_all_waiting_requests_fail_if_no_producer_id_can_be_reserved(
    setup: Setup,
) -> None:
    setup.gives_producer_ids = False
    answers = await asyncio.gather(setup.init("new"), setup.init("new"))
    assert [each.code for each in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    setup.gives_producer_ids = True
    assert (await setup.init("new")).code == ErrorCode.NONE
