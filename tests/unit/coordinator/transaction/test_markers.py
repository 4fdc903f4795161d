"""Markers: retried until every partition has one, also by the next coordinator."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.ids import Decision
from lakelog.coordinator.transaction.markers import Marker
from transaction_setup import BUMPING, Setup, in_virtual_time

PARTITIONS = [("orders", index) for index in range(4)]


@in_virtual_time()
async def test_every_partition_gets_a_marker(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, *PARTITIONS, version=BUMPING)
    for topic, index in PARTITIONS:
        setup.markers.partition(topic, index).append(producer, "kept")
    await setup.end(producer, commit=True, version=BUMPING)
    assert await setup.settled() == "CompleteCommit"
    for topic, index in PARTITIONS:
        assert setup.markers.partition(topic, index).visible == ["kept"]
    assert {marker.coordinator_epoch for marker in setup.markers.written} == {setup.epoch}
    assert {marker.transaction_version for marker in setup.markers.written} == {BUMPING}


@in_virtual_time()
async def test_each_decision_has_a_higher_number_than_all_before(setup: Setup) -> None:
    """Also after a shard was loaded again in the same leader epoch; a repetition has the same."""
    producer = await setup.ready()
    numbers: list[set[int]] = []
    for commit in (True, False, True):
        await setup.add(producer, ("orders", 0), ("orders", 1))
        fates = itertools.chain(["lost", "ok", "kept"], itertools.repeat("ok"))
        setup.markers.fate = lambda fates=fates: next(fates)  # type: ignore[misc]
        await setup.end(producer, commit=commit)
        await setup.settled()
        numbers.append({marker.decision for marker in setup.markers.written})
        setup.markers.written.clear()
        setup.coordinator.unload_partition(0)
        await setup.coordinator.load_partition(0, setup.epoch)
    assert [len(each) for each in numbers] == [1, 1, 1]
    assert 0 <= max(numbers[0]) < max(numbers[1]) < max(numbers[2])


@in_virtual_time()
async def test_a_shard_never_adopts_a_later_coordinator_epoch(setup: Setup) -> None:
    """Another coordinator may have decided otherwise in it, and its markers must win."""
    producer = await setup.ready()
    await setup.add(producer, ("orders", 0))
    fates = itertools.chain(["lost"] * 2, itertools.repeat("ok"))
    setup.markers.fate = lambda: next(fates)
    loaded_in = setup.epoch
    await setup.end(producer, commit=False)
    setup.log.leader_epochs[0] = setup.epoch = loaded_in + 1
    await asyncio.sleep(5)
    assert {marker.coordinator_epoch for marker in setup.markers.written} == {loaded_in}
    await setup.coordinator.load_partition(0, setup.epoch)
    assert await setup.settled() == "CompleteAbort"
    assert setup.markers.written[-1].coordinator_epoch == loaded_in + 1


@in_virtual_time()
async def test_only_failed_markers_are_retried(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, *PARTITIONS)
    fates = itertools.chain(["ok", "lost", "kept", "ok"], itertools.repeat("ok"))
    setup.markers.fate = lambda: next(fates)
    await setup.end(producer, commit=False)
    assert await setup.settled() == "CompleteAbort"
    told = [marker.partition for marker in setup.markers.written]
    assert told == [0, 2, 3, 1, 2], "one was lost, one written twice"


@in_virtual_time()
async def test_a_deleted_partition_needs_no_marker(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, *PARTITIONS)
    setup.markers.gone = {("orders", 1)}
    await setup.end(producer, commit=True)
    assert await setup.settled() == "CompleteCommit"


@in_virtual_time()
async def test_a_newer_coordinator_ends_the_work_of_an_older_one(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, ("orders", 0))

    async def write(markers: object) -> list[ErrorCode]:
        return [ErrorCode.TRANSACTION_COORDINATOR_FENCED]

    setup.markers.write = write  # type: ignore[method-assign]
    await setup.end(producer, commit=True)
    await asyncio.sleep(60)
    assert setup.state() == "PrepareCommit"
    assert not setup.coordinator._markers._running


@in_virtual_time()
async def test_kafka_19999_a_coordinator_killed_between_markers_and_complete(
    setup: Setup,
) -> None:
    for round_ in range(20):
        producer = await setup.ready()
        await setup.add(producer, *PARTITIONS, version=BUMPING)
        for topic, index in PARTITIONS:
            setup.markers.partition(topic, index).append(producer, f"{round_}")
        setup.markers.delay_s = lambda: 0.25
        answer = await setup.end(producer, commit=True, version=BUMPING)
        assert answer.code == ErrorCode.NONE
        await asyncio.sleep(0.25 * (round_ % 6))
        await setup.restart()
        setup.markers.delay_s = lambda: 0.0
        assert await setup.settled() == "CompleteCommit"
        assert setup.identity() == answer[1:]
    for topic, index in PARTITIONS:
        assert setup.markers.partition(topic, index).visible == [str(n) for n in range(20)]


@in_virtual_time()
async def test_complete_is_tried_until_it_is_in_the_log(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, ("orders", 0))
    fates = itertools.chain(["ok", "refused", "kept"], itertools.repeat("ok"))
    setup.log.fate = lambda: next(fates)
    await setup.end(producer, commit=True)
    await asyncio.sleep(5)
    assert setup.state() == "CompleteCommit"
    await setup.restart()
    assert setup.state() == "CompleteCommit"


@in_virtual_time()
async def test_an_abort_of_nothing_needs_no_marker(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.end(producer, commit=False, version=BUMPING)
    assert await setup.settled() == "CompleteAbort"
    assert not setup.markers.written


@in_virtual_time()
async def test_an_abort_of_nothing_whose_completion_failed_is_completed(
    setup: Setup,
) -> None:
    producer = await setup.ready()
    fates = itertools.chain(["ok", "refused", "refused"], itertools.repeat("ok"))
    setup.log.fate = lambda: next(fates)
    await setup.end(producer, commit=False, version=BUMPING)
    assert setup.state() == "PrepareAbort"
    await asyncio.sleep(1)
    assert setup.state() == "CompleteAbort"


@in_virtual_time()
async def test_a_writer_that_fails_as_a_whole_is_tried_again(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, ("orders", 0))
    write = setup.markers.write
    failures = iter((KafkaError(ErrorCode.NETWORK_EXCEPTION), OSError("gone")))

    async def failing(markers: Sequence[Marker]) -> list[ErrorCode]:
        failure = next(failures, None)
        if failure is not None:
            raise failure
        return await write(markers)

    setup.markers.write = failing  # type: ignore[method-assign]
    await setup.end(producer, commit=True)
    assert await setup.settled() == "CompleteCommit"


@in_virtual_time()
async def test_markers_of_a_dropped_shard_come_first(setup: Setup) -> None:
    """The shard is dropped while its marker is in flight: the next transaction has to wait."""
    producer = await setup.ready()
    await setup.add(producer, ("orders", 0))
    setup.markers.partition("orders", 0).append(producer, "one")
    setup.markers.delay_s = lambda: 5.0
    await setup.end(producer, commit=False)
    await asyncio.sleep(1)
    setup.coordinator.unload_partition(0)
    await setup.coordinator.load_partition(0, setup.epoch)
    setup.markers.delay_s = lambda: 0.0
    assert (await setup.init()).code == ErrorCode.CONCURRENT_TRANSACTIONS
    await setup.settled()
    assert setup.loop.time() >= 5, "the first marker was waited for"


@in_virtual_time()
async def test_a_transaction_ends_although_bugs_fail_its_markers_and_its_completion(
    setup: Setup,
) -> None:
    """A task that ended would leave it open until another coordinator takes over."""
    producer = await setup.ready()
    await setup.add(producer, ("orders", 0))
    (shard,) = setup.coordinator._host.active_shards()
    write, complete = setup.markers.write, shard.endings.complete
    bugs = iter([AssertionError("in write")] * 2)
    later_bugs = iter([AssertionError("in complete")] * 2)

    async def failing(markers: Sequence[Marker]) -> list[ErrorCode]:
        for bug in bugs:
            raise bug
        return await write(markers)

    def failing_later(*arguments: Any) -> Decision:
        for bug in later_bugs:
            raise bug
        return complete(*arguments)

    setup.markers.write = failing  # type: ignore[method-assign]
    shard.endings.complete = failing_later  # type: ignore[assignment,method-assign]
    await setup.end(producer, commit=True)
    await asyncio.sleep(60)
    assert setup.state() == "CompleteCommit"
    assert (next(bugs, None), next(later_bugs, None)) == (None, None)
