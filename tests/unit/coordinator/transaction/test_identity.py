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
from transaction_setup import BUMPING, CLASSIC, Producer, Setup, in_virtual_time

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED


@in_virtual_time()
async def test_a_new_id_begins_at_epoch_0_and_the_next_producer_at_1(
    setup: Setup,
) -> None:
    first, second = await setup.ready(), await setup.ready()
    assert first.epoch == 0
    assert second == Producer(first.producer_id, 1)
    assert await setup.add(first) == FENCED
    assert await setup.add(second) == ErrorCode.NONE


@in_virtual_time()
async def test_ids_do_not_share_a_producer_id(setup: Setup) -> None:
    assert (await setup.ready("a")).producer_id != (await setup.ready("b")).producer_id


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_out_of_bounds(timeout_ms: int) -> None:
    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        answer = await setup.init(timeout_ms=timeout_ms)
        assert answer.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT

    scenario()


@in_virtual_time()
async def test_an_ongoing_transaction_is_aborted_first(setup: Setup) -> None:
    first = await setup.ready()
    await setup.add(first)
    setup.markers.partition("orders", 0).append(first, "lost")
    assert (await setup.init()).code == CONCURRENT
    second = await setup.ready()
    assert second == Producer(first.producer_id, 2)
    assert setup.markers.partition("orders", 0).fates == [False]
    assert (await setup.end(first, commit=True)).code == FENCED


@in_virtual_time()
async def test_while_markers_are_written_the_next_producer_waits(setup: Setup) -> None:
    first = await setup.ready()
    await setup.add(first)
    setup.markers.delay_s = lambda: 10.0
    assert (await setup.end(first, commit=True)).code == ErrorCode.NONE
    assert (await setup.init()).code == CONCURRENT
    assert setup.state() == "PrepareCommit"
    await setup.ready()
    assert [marker.commit for marker in setup.markers.written] == [True]


@in_virtual_time()
async def test_kip_360_a_producer_continues_with_the_next_epoch(setup: Setup) -> None:
    first = await setup.ready()
    second = await setup.ready(expected=first)
    assert second == Producer(first.producer_id, 1)
    assert await setup.ready(expected=first) == second, "the same request, repeated"
    other = await setup.ready()
    assert other == Producer(first.producer_id, 2)
    assert (await setup.init(expected=second)).code == FENCED
    assert (await setup.init(expected=first)).code == FENCED
    assert (await setup.init(expected=Producer(4711, 2))).code == FENCED


@in_virtual_time()
async def test_a_fenced_producer_does_not_abort_its_successors_transaction(
    setup: Setup,
) -> None:
    first, second = await setup.ready(), await setup.ready()
    await setup.add(second)
    assert (await setup.init(expected=first)).code == FENCED
    assert setup.state() == "Ongoing"


@in_virtual_time()
async def test_an_expired_id_accepts_any_expected_producer(setup: Setup) -> None:
    assert (await setup.ready(expected=Producer(4711, 5))).epoch == 0


@in_virtual_time()
async def test_kafka_9666_failed_fences_do_not_use_epochs_up(setup: Setup) -> None:
    first = await setup.ready()
    await setup.add(first)
    setup.log.fate = lambda: "refused"
    for _ in range(1000):
        assert (await setup.init()).code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    setup.log.fate = lambda: "ok"
    assert (await setup.ready()).epoch <= first.epoch + 2


@in_virtual_time()
async def test_after_the_last_epoch_comes_a_new_producer_id(setup: Setup) -> None:
    last = await setup.with_epoch(EPOCH_LAST)
    fresh = await setup.ready()
    assert fresh.producer_id != last.producer_id
    assert fresh.epoch == 0


@in_virtual_time()
async def test_a_producer_with_the_last_epoch_continues_with_a_new_id(
    setup: Setup,
) -> None:
    last = await setup.with_epoch(EPOCH_LAST)
    fresh = await setup.ready(expected=last)
    assert fresh.producer_id != last.producer_id
    assert await setup.ready(expected=last) == fresh, "the same request, repeated"


@pytest.mark.parametrize("version", [CLASSIC, BUMPING])
@pytest.mark.parametrize("epoch", range(EPOCH_MAX - 4, EPOCH_MAX))
def test_kafka_18660_epochs_never_overflow(version: TransactionVersion, epoch: int) -> None:
    """KAFKA-18660, KAFKA-19367: commits, aborts and timeouts around the last epoch."""

    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        producer = await setup.with_epoch(epoch)
        seen = {producer}
        for step in ("commit", "abort", "timeout", "commit", "timeout", "abort"):
            assert await setup.add(producer, version=version) == ErrorCode.NONE
            setup.markers.partition("orders", 0).append(producer, step)
            if step == "timeout":
                await asyncio.sleep(61)
                assert (await setup.init(expected=producer)).code == FENCED
                producer = await setup.ready()
            else:
                answer = await setup.end(producer, commit=step == "commit", version=version)
                assert answer.code == ErrorCode.NONE
                await setup.settled()
                if version is BUMPING:
                    producer = Producer(answer.producer_id, answer.producer_epoch)
                else:
                    producer = await setup.ready()
            assert 0 <= producer.epoch < EPOCH_MAX
            assert producer not in seen
            seen.add(producer)
        assert setup.markers.partition("orders", 0).visible == ["commit", "commit"]

    scenario()


@pytest.mark.parametrize("ask", ["add", "end", "init"])
def test_a_new_producer_id_waits_until_every_marker_is_written(ask: str) -> None:
    """EndTxn replies before the markers; a client that is too early must get a retriable code."""

    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        last = await setup.with_epoch(EPOCH_LAST)
        await setup.add(last, version=BUMPING)
        setup.markers.fate = lambda: "lost"
        answer = await setup.end(last, commit=True, version=BUMPING)
        fresh = Producer(answer.producer_id, answer.producer_epoch)
        assert (answer.code, fresh.epoch) == (ErrorCode.NONE, 0)
        assert fresh.producer_id != last.producer_id
        stranger = Producer(fresh.producer_id, 1)

        async def asked(producer: Producer) -> ErrorCode:
            if ask == "add":
                return await setup.add(producer, version=BUMPING)
            if ask == "end":
                return (await setup.end(producer, commit=False, version=BUMPING)).code
            return (await setup.init(expected=producer)).code

        assert await asked(fresh) == CONCURRENT
        assert await asked(stranger) in (FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        await setup.restart()
        assert await asked(fresh) == CONCURRENT
        setup.markers.fate = lambda: "ok"
        assert await setup.settled() == "CompleteCommit"
        assert await asked(fresh) == ErrorCode.NONE

    scenario()


@in_virtual_time()
async def test_kafka_20090_a_fence_at_the_last_epoch_leaves_a_usable_id(
    setup: Setup,
) -> None:
    last = await setup.with_epoch(EPOCH_LAST)
    await setup.add(last, version=BUMPING)
    await asyncio.sleep(61)
    for commit in (False, True):
        assert (await setup.end(last, commit=commit, version=BUMPING)).code == FENCED
    assert await setup.settled() == "CompleteAbort"
    await setup.restart()
    assert (await setup.init(expected=last)).code == FENCED
    for commit in (False, True):
        assert (await setup.end(last, commit=commit, version=BUMPING)).code == FENCED
    assert (await setup.ready()).epoch == 0


@in_virtual_time()
async def test_no_epoch_that_the_log_may_have_lost_is_reused(setup: Setup) -> None:
    """A power failure may have removed the end of the log, with epochs that are in use."""
    first = await setup.ready()
    setup.lose_power()
    await setup.restart()
    fresh = await setup.ready()
    assert fresh.producer_id != first.producer_id
    assert fresh.epoch == 0
    assert await setup.add(first) != ErrorCode.NONE
    assert await setup.ready() == Producer(fresh.producer_id, 1), "a new id is reused after that"


@in_virtual_time()
async def test_a_producer_that_continues_from_a_possibly_lost_epoch_gets_another_id(
    setup: Setup,
) -> None:
    first = await setup.ready()
    setup.lose_power()
    await setup.restart()
    answer = await setup.init(expected=first)
    assert answer.code == ErrorCode.NONE
    assert (answer.producer_id != first.producer_id, answer.producer_epoch) == (True, 0)


@pytest.mark.parametrize("uses", [1, 3])
def test_a_producer_that_missed_its_new_id_gets_it_again(uses: int) -> None:
    """KIP-360: the response was lost, and the client repeats its request."""

    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        for _ in range(uses):
            first = await setup.ready()
        setup.lose_power()
        await setup.restart()
        lost = await setup.init(expected=first)
        for _ in range(2):
            again = await setup.init(expected=first)
            assert again == lost
        assert await setup.add(Producer(again.producer_id, again.producer_epoch)) == ErrorCode.NONE
        late = await setup.init(expected=first)
        assert late.code == FENCED, "it was heard of since"

    scenario()


@in_virtual_time()
async def test_an_unused_id_is_not_trusted_after_a_clean_stop_either(
    setup: Setup,
) -> None:
    first = await setup.ready()
    setup.lose_power()
    for _ in range(3):
        await setup.restart()
    assert (await setup.ready()).producer_id != first.producer_id


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_transaction_has_no_possibly_lost_epoch(commit: bool) -> None:
    """KIP-890: the end of a transaction also gives a new epoch, which another producer may hold."""

    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        first = await setup.ready()
        await setup.add(first, version=BUMPING)
        setup.markers.partition("orders", 0).append(first, "kept")
        setup.lose_power()
        await setup.restart()
        answer = await setup.end(first, commit=commit, version=BUMPING)
        fresh = Producer(answer.producer_id, answer.producer_epoch)
        assert (answer.code, fresh.producer_id != first.producer_id) == (ErrorCode.NONE, True)
        await setup.settled()
        assert setup.markers.partition("orders", 0).visible == (["kept"] if commit else [])
        await setup.restart()
        assert await setup.end(first, commit=commit, version=BUMPING) == answer, "repeated"
        assert await setup.add(fresh, version=BUMPING) == ErrorCode.NONE
        following = await setup.end(fresh, commit=commit, version=BUMPING)
        assert following.producer_id == fresh.producer_id
        late = await setup.end(first, commit=commit, version=BUMPING)
        assert late.code in (FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    scenario()


@in_virtual_time()
async def test_the_older_flow_keeps_its_epoch_at_the_end_of_a_transaction(
    setup: Setup,
) -> None:
    first = await setup.ready()
    await setup.add(first)
    setup.lose_power()
    await setup.restart()
    answer = await setup.end(first, commit=True)
    assert answer.code == ErrorCode.NONE
    await setup.settled()
    assert setup.identity() == first


def test_the_highest_epoch_is_never_a_clients() -> None:
    held = Transaction(producer_id=1, producer_epoch=EPOCH_LAST, timeout_ms=1, last_update_ms=0)
    assert needs_producer_id(held, None, may_be_old=False)
    before = replace(held, producer_epoch=EPOCH_LAST - 1)
    assert not needs_producer_id(before, None, may_be_old=False)


@in_virtual_time(ids_max=2, partitions=3, id_expiration_ms=60_000, id_expiration_check_ms=10_000)
async def test_one_transactional_id_too_many_waits_until_others_have_expired(
    setup: Setup,
) -> None:
    first = await setup.ready("a")
    await setup.ready("b")
    assert (await setup.init("c")).code is ErrorCode.POLICY_VIOLATION
    assert setup.coordinator.id_count == 2
    assert (await setup.init("a")).code is ErrorCode.NONE
    assert (await setup.init("a", first)).code is not ErrorCode.POLICY_VIOLATION
    await setup.restart()
    assert (await setup.init("c")).code is ErrorCode.POLICY_VIOLATION
    await asyncio.sleep(75)
    assert (await setup.init("c")).code is ErrorCode.NONE
