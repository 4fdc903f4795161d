"""Markers: retried until every partition has one, also by the next coordinator."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.markers import Marker
from transaction_world import BUMPING, World, in_world

PARTITIONS = [("orders", index) for index in range(4)]


@in_world()
async def test_every_partition_gets_a_marker(world: World) -> None:
    producer = await world.ready()
    await world.add(producer, *PARTITIONS, version=BUMPING)
    for topic, index in PARTITIONS:
        world.markers.partition(topic, index).append(producer, "kept")
    await world.end(producer, commit=True, version=BUMPING)
    assert await world.settled() == "CompleteCommit"
    for topic, index in PARTITIONS:
        assert world.markers.partition(topic, index).visible == ["kept"]
    assert {marker.coordinator_epoch for marker in world.markers.written} == {world.epoch}
    assert {marker.transaction_version for marker in world.markers.written} == {BUMPING}


@in_world()
async def test_only_failed_markers_are_retried(world: World) -> None:
    producer = await world.ready()
    await world.add(producer, *PARTITIONS)
    fates = itertools.chain(["ok", "lost", "kept", "ok"], itertools.repeat("ok"))
    world.markers.fate = lambda: next(fates)
    await world.end(producer, commit=False)
    assert await world.settled() == "CompleteAbort"
    told = [marker.partition for marker in world.markers.written]
    assert told == [0, 2, 3, 1, 2], "one was lost, one written twice"


@in_world()
async def test_a_deleted_partition_needs_no_marker(world: World) -> None:
    producer = await world.ready()
    await world.add(producer, *PARTITIONS)
    world.markers.gone = {("orders", 1)}
    await world.end(producer, commit=True)
    assert await world.settled() == "CompleteCommit"


@in_world()
async def test_a_newer_coordinator_ends_the_work_of_an_older_one(world: World) -> None:
    producer = await world.ready()
    await world.add(producer, ("orders", 0))

    async def write(markers: object) -> list[ErrorCode]:
        return [ErrorCode.TRANSACTION_COORDINATOR_FENCED]

    world.markers.write = write  # type: ignore[method-assign]
    await world.end(producer, commit=True)
    await asyncio.sleep(60)
    assert world.state() == "PrepareCommit"
    assert not world.coordinator._markers._running


@in_world()
async def test_kafka_19999_a_coordinator_killed_between_markers_and_complete(world: World) -> None:
    for round_ in range(20):
        producer = await world.ready()
        await world.add(producer, *PARTITIONS, version=BUMPING)
        for topic, index in PARTITIONS:
            world.markers.partition(topic, index).append(producer, f"{round_}")
        world.markers.delay_s = lambda: 0.25
        answer = await world.end(producer, commit=True, version=BUMPING)
        assert answer.code == ErrorCode.NONE
        await asyncio.sleep(0.25 * (round_ % 6))
        await world.restart()
        world.markers.delay_s = lambda: 0.0
        assert await world.settled() == "CompleteCommit"
        assert world.identity() == answer[1:]
    for topic, index in PARTITIONS:
        assert world.markers.partition(topic, index).visible == [str(n) for n in range(20)]


@in_world()
async def test_complete_is_tried_until_it_is_in_the_log(world: World) -> None:
    producer = await world.ready()
    await world.add(producer, ("orders", 0))
    fates = itertools.chain(["ok", "refused", "kept"], itertools.repeat("ok"))
    world.log.fate = lambda: next(fates)
    await world.end(producer, commit=True)
    await asyncio.sleep(5)
    assert world.state() == "CompleteCommit"
    await world.restart()
    assert world.state() == "CompleteCommit"


@in_world()
async def test_an_abort_of_nothing_needs_no_marker(world: World) -> None:
    producer = await world.ready()
    await world.end(producer, commit=False, version=BUMPING)
    assert await world.settled() == "CompleteAbort"
    assert not world.markers.written


@in_world()
async def test_an_abort_of_nothing_whose_completion_failed_is_completed(world: World) -> None:
    producer = await world.ready()
    fates = itertools.chain(["ok", "refused", "refused"], itertools.repeat("ok"))
    world.log.fate = lambda: next(fates)
    await world.end(producer, commit=False, version=BUMPING)
    assert world.state() == "PrepareAbort"
    await asyncio.sleep(1)
    assert world.state() == "CompleteAbort"


@in_world()
async def test_a_writer_that_fails_as_a_whole_is_tried_again(world: World) -> None:
    producer = await world.ready()
    await world.add(producer, ("orders", 0))
    write = world.markers.write
    failures = iter((KafkaError(ErrorCode.NETWORK_EXCEPTION), OSError("gone")))

    async def failing(markers: Sequence[Marker]) -> list[ErrorCode]:
        failure = next(failures, None)
        if failure is not None:
            raise failure
        return await write(markers)

    world.markers.write = failing  # type: ignore[method-assign]
    await world.end(producer, commit=True)
    assert await world.settled() == "CompleteCommit"


@in_world()
async def test_markers_of_a_dropped_shard_come_first(world: World) -> None:
    """The shard is dropped while its marker is in flight: the next transaction has to wait."""
    producer = await world.ready()
    await world.add(producer, ("orders", 0))
    world.markers.partition("orders", 0).append(producer, "one")
    world.markers.delay_s = lambda: 5.0
    await world.end(producer, commit=False)
    await asyncio.sleep(1)
    world.coordinator.unload_partition(0)
    await world.coordinator.load_partition(0)
    world.markers.delay_s = lambda: 0.0
    assert (await world.init()).code == ErrorCode.CONCURRENT_TRANSACTIONS
    await world.settled()
    assert world.loop.time() >= 5, "the first marker was waited for"
