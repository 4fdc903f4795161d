"""InitProducerId: fencing, epochs and their exhaustion (KIP-98, KIP-360, KIP-890)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.state import (
    EPOCH_LAST,
    EPOCH_MAX,
    Transaction,
    TransactionVersion,
)
from lakelog.coordinator.transaction.transitions import needs_producer_id
from transaction_world import BUMPING, CLASSIC, Producer, World, in_world

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED


@in_world()
async def test_a_new_id_begins_at_epoch_0_and_the_next_producer_at_1(world: World) -> None:
    first, second = await world.ready(), await world.ready()
    assert first.epoch == 0
    assert second == Producer(first.producer_id, 1)
    assert await world.add(first) == FENCED
    assert await world.add(second) == ErrorCode.NONE


@in_world()
async def test_ids_do_not_share_a_producer_id(world: World) -> None:
    assert (await world.ready("a")).producer_id != (await world.ready("b")).producer_id


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_out_of_bounds(timeout_ms: int) -> None:
    @in_world()
    async def scenario(world: World) -> None:
        answer = await world.init(timeout_ms=timeout_ms)
        assert answer.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT

    scenario()


@in_world()
async def test_an_ongoing_transaction_is_aborted_first(world: World) -> None:
    first = await world.ready()
    await world.add(first)
    world.markers.partition("orders", 0).append(first, "lost")
    assert (await world.init()).code == CONCURRENT
    second = await world.ready()
    assert second == Producer(first.producer_id, 2)
    assert world.markers.partition("orders", 0).fates == [False]
    assert (await world.end(first, commit=True)).code == FENCED


@in_world()
async def test_while_markers_are_written_the_next_producer_waits(world: World) -> None:
    first = await world.ready()
    await world.add(first)
    world.markers.delay_s = lambda: 10.0
    assert (await world.end(first, commit=True)).code == ErrorCode.NONE
    assert (await world.init()).code == CONCURRENT
    assert world.state() == "PrepareCommit"
    await world.ready()
    assert [marker.commit for marker in world.markers.written] == [True]


@in_world()
async def test_kip_360_a_producer_continues_with_the_next_epoch(world: World) -> None:
    first = await world.ready()
    second = await world.ready(expected=first)
    assert second == Producer(first.producer_id, 1)
    assert await world.ready(expected=first) == second, "the same request, repeated"
    other = await world.ready()
    assert other == Producer(first.producer_id, 2)
    assert (await world.init(expected=second)).code == FENCED
    assert (await world.init(expected=first)).code == FENCED
    assert (await world.init(expected=Producer(4711, 2))).code == FENCED


@in_world()
async def test_a_fenced_producer_does_not_abort_its_successors_transaction(world: World) -> None:
    first, second = await world.ready(), await world.ready()
    await world.add(second)
    assert (await world.init(expected=first)).code == FENCED
    assert world.state() == "Ongoing"


@in_world()
async def test_an_expired_id_accepts_any_expected_producer(world: World) -> None:
    assert (await world.ready(expected=Producer(4711, 5))).epoch == 0


@in_world()
async def test_kafka_9666_failed_fences_do_not_use_epochs_up(world: World) -> None:
    first = await world.ready()
    await world.add(first)
    world.log.fate = lambda: "refused"
    for _ in range(1000):
        assert (await world.init()).code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.fate = lambda: "ok"
    assert (await world.ready()).epoch <= first.epoch + 2


@in_world()
async def test_after_the_last_epoch_comes_a_new_producer_id(world: World) -> None:
    last = await world.with_epoch(EPOCH_LAST)
    fresh = await world.ready()
    assert fresh.producer_id != last.producer_id
    assert fresh.epoch == 0


@in_world()
async def test_a_producer_with_the_last_epoch_continues_with_a_new_id(world: World) -> None:
    last = await world.with_epoch(EPOCH_LAST)
    fresh = await world.ready(expected=last)
    assert fresh.producer_id != last.producer_id
    assert await world.ready(expected=last) == fresh, "the same request, repeated"


@pytest.mark.parametrize("version", [CLASSIC, BUMPING])
@pytest.mark.parametrize("epoch", range(EPOCH_MAX - 4, EPOCH_MAX))
def test_kafka_18660_epochs_never_overflow(version: TransactionVersion, epoch: int) -> None:
    """KAFKA-18660, KAFKA-19367: commits, aborts and timeouts around the last epoch."""

    @in_world()
    async def scenario(world: World) -> None:
        producer = await world.with_epoch(epoch)
        seen = {producer}
        for step in ("commit", "abort", "timeout", "commit", "timeout", "abort"):
            assert await world.add(producer, version=version) == ErrorCode.NONE
            world.markers.partition("orders", 0).append(producer, step)
            if step == "timeout":
                await asyncio.sleep(61)
                assert (await world.init(expected=producer)).code == FENCED
                producer = await world.ready()
            else:
                answer = await world.end(producer, commit=step == "commit", version=version)
                assert answer.code == ErrorCode.NONE
                await world.settled()
                if version is BUMPING:
                    producer = Producer(answer.producer_id, answer.producer_epoch)
                else:
                    producer = await world.ready()
            assert 0 <= producer.epoch < EPOCH_MAX
            assert producer not in seen
            seen.add(producer)
        assert world.markers.partition("orders", 0).visible == ["commit", "commit"]

    scenario()


@pytest.mark.parametrize("ask", ["add", "end", "init"])
def test_a_new_producer_id_waits_until_every_marker_is_written(ask: str) -> None:
    """EndTxn replies before the markers; a client that is too early must get a retriable code."""

    @in_world()
    async def scenario(world: World) -> None:
        last = await world.with_epoch(EPOCH_LAST)
        await world.add(last, version=BUMPING)
        world.markers.fate = lambda: "lost"
        answer = await world.end(last, commit=True, version=BUMPING)
        fresh = Producer(answer.producer_id, answer.producer_epoch)
        assert (answer.code, fresh.epoch) == (ErrorCode.NONE, 0)
        assert fresh.producer_id != last.producer_id
        stranger = Producer(fresh.producer_id, 1)

        async def asked(producer: Producer) -> ErrorCode:
            if ask == "add":
                return await world.add(producer, version=BUMPING)
            if ask == "end":
                return (await world.end(producer, commit=False, version=BUMPING)).code
            return (await world.init(expected=producer)).code

        assert await asked(fresh) == CONCURRENT
        assert await asked(stranger) in (FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        await world.restart()
        assert await asked(fresh) == CONCURRENT
        world.markers.fate = lambda: "ok"
        assert await world.settled() == "CompleteCommit"
        assert await asked(fresh) == ErrorCode.NONE

    scenario()


@in_world()
async def test_kafka_20090_a_fence_at_the_last_epoch_leaves_a_usable_id(world: World) -> None:
    last = await world.with_epoch(EPOCH_LAST)
    await world.add(last, version=BUMPING)
    await asyncio.sleep(61)
    for commit in (False, True):
        assert (await world.end(last, commit=commit, version=BUMPING)).code == FENCED
    assert await world.settled() == "CompleteAbort"
    await world.restart()
    assert (await world.init(expected=last)).code == FENCED
    for commit in (False, True):
        assert (await world.end(last, commit=commit, version=BUMPING)).code == FENCED
    assert (await world.ready()).epoch == 0


@in_world()
async def test_no_epoch_that_the_log_may_have_lost_is_reused(world: World) -> None:
    """A power failure may have removed the end of the log, with epochs that are in use."""
    first = await world.ready()
    world.lose_power()
    await world.restart()
    fresh = await world.ready()
    assert fresh.producer_id != first.producer_id
    assert fresh.epoch == 0
    assert await world.add(first) != ErrorCode.NONE
    assert await world.ready() == Producer(fresh.producer_id, 1), "a new id is reused after that"


@in_world()
async def test_a_producer_that_continues_from_a_possibly_lost_epoch_gets_another_id(
    world: World,
) -> None:
    first = await world.ready()
    world.lose_power()
    await world.restart()
    answer = await world.init(expected=first)
    assert answer.code == ErrorCode.NONE
    assert (answer.producer_id != first.producer_id, answer.producer_epoch) == (True, 0)


@pytest.mark.parametrize("uses", [1, 3])
def test_a_producer_that_missed_its_new_id_gets_it_again(uses: int) -> None:
    """KIP-360: the response was lost, and the client repeats its request."""

    @in_world()
    async def scenario(world: World) -> None:
        for _ in range(uses):
            first = await world.ready()
        world.lose_power()
        await world.restart()
        lost = await world.init(expected=first)
        for _ in range(2):
            again = await world.init(expected=first)
            assert again == lost
        assert await world.add(Producer(again.producer_id, again.producer_epoch)) == ErrorCode.NONE
        late = await world.init(expected=first)
        assert late.code == FENCED, "it was heard of since"

    scenario()


@in_world()
async def test_an_unused_id_is_not_trusted_after_a_clean_stop_either(
    world: World,
) -> None:
    first = await world.ready()
    world.lose_power()
    for _ in range(3):
        await world.restart()
    assert (await world.ready()).producer_id != first.producer_id


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_transaction_has_no_possibly_lost_epoch(commit: bool) -> None:
    """KIP-890: the end of a transaction also gives a new epoch, which another producer may hold."""

    @in_world()
    async def scenario(world: World) -> None:
        first = await world.ready()
        await world.add(first, version=BUMPING)
        world.markers.partition("orders", 0).append(first, "kept")
        world.lose_power()
        await world.restart()
        answer = await world.end(first, commit=commit, version=BUMPING)
        fresh = Producer(answer.producer_id, answer.producer_epoch)
        assert (answer.code, fresh.producer_id != first.producer_id) == (ErrorCode.NONE, True)
        await world.settled()
        assert world.markers.partition("orders", 0).visible == (["kept"] if commit else [])
        await world.restart()
        assert await world.end(first, commit=commit, version=BUMPING) == answer, "repeated"
        assert await world.add(fresh, version=BUMPING) == ErrorCode.NONE
        following = await world.end(fresh, commit=commit, version=BUMPING)
        assert following.producer_id == fresh.producer_id
        late = await world.end(first, commit=commit, version=BUMPING)
        assert late.code in (FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    scenario()


@in_world()
async def test_the_older_flow_keeps_its_epoch_at_the_end_of_a_transaction(world: World) -> None:
    first = await world.ready()
    await world.add(first)
    world.lose_power()
    await world.restart()
    answer = await world.end(first, commit=True)
    assert answer.code == ErrorCode.NONE
    await world.settled()
    assert world.identity() == first


def test_the_highest_epoch_is_never_a_clients() -> None:
    held = Transaction(producer_id=1, producer_epoch=EPOCH_LAST, timeout_ms=1, last_update_ms=0)
    assert needs_producer_id(held, None, may_be_old=False)
    before = replace(held, producer_epoch=EPOCH_LAST - 1)
    assert not needs_producer_id(before, None, may_be_old=False)


@in_world(ids_max=2, partitions=3, id_expiration_ms=60_000, id_expiration_check_ms=10_000)
async def test_one_transactional_id_too_many_waits_until_others_have_expired(world: World) -> None:
    first = await world.ready("a")
    await world.ready("b")
    assert (await world.init("c")).code is ErrorCode.POLICY_VIOLATION
    assert world.coordinator.id_count == 2
    assert (await world.init("a")).code is ErrorCode.NONE
    assert (await world.init("a", first)).code is not ErrorCode.POLICY_VIOLATION
    await world.restart()
    assert (await world.init("c")).code is ErrorCode.POLICY_VIOLATION
    await asyncio.sleep(75)
    assert (await world.init("c")).code is ErrorCode.NONE
