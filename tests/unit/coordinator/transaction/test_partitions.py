"""Adding and verifying partitions; describing and listing transactions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC, PartitionCodes
from lakelog.protocol.describe_transactions import DescribeTransactionsRequest
from lakelog.protocol.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from transaction_world import BUMPING, Producer, World, in_world

NONE = ErrorCode.NONE
A, B = ("orders", 0), ("orders", 1)


async def verify(
    world: World, producer: Producer, *keys: tuple[str, int], add: bool = False
) -> PartitionCodes:
    return await world.coordinator.verify("t", *producer, keys, add=add)


@in_world()
async def test_kip_890_only_added_partitions_are_verified(world: World) -> None:
    producer = await world.ready()
    assert await verify(world, producer, A) == {A: ErrorCode.TRANSACTION_ABORTABLE}
    await world.add(producer, A)
    assert await verify(world, producer, A, B) == {A: NONE, B: ErrorCode.TRANSACTION_ABORTABLE}
    older = Producer(producer.producer_id, producer.epoch - 1)
    assert await verify(world, older, A) == {A: ErrorCode.PRODUCER_FENCED}
    assert await verify(world, Producer(1, 0), A) == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@in_world()
async def test_verification_may_add(world: World) -> None:
    producer = await world.ready()
    assert await verify(world, producer, A, add=True) == {A: NONE}
    assert await verify(world, producer, A) == {A: NONE}
    assert world.state() == "Ongoing"


@in_world()
async def test_an_ended_transaction_verifies_nothing(world: World) -> None:
    producer = await world.ready()
    await world.add(producer, A)
    world.markers.delay_s = lambda: 1000.0
    await world.end(producer, commit=True)
    assert await verify(world, producer, A) == {A: ErrorCode.CONCURRENT_TRANSACTIONS}


@in_world()
async def test_several_may_be_added_at_once(world: World) -> None:
    """A producer with KIP-890 adds partitions with first batches, several at a time."""
    producer = await world.ready()
    world.log.delay_s = lambda: 1.0
    keys = [("orders", index) for index in range(8)]
    codes = await asyncio.gather(*(world.add(producer, key, version=BUMPING) for key in keys))
    assert codes == [NONE] * 8
    answer = await world.end(producer, commit=True, version=BUMPING)
    assert answer.code == NONE
    await world.settled()
    assert {(marker.topic, marker.partition) for marker in world.markers.written} == set(keys)


@in_world()
async def test_adding_the_same_again_writes_nothing(world: World) -> None:
    producer = await world.ready()
    await world.add(producer, A, B)
    appends = world.log.appends
    assert await world.add(producer, B) == NONE
    assert world.log.appends == appends


@in_world()
async def test_a_partition_whose_adding_failed_is_not_in_the_transaction(world: World) -> None:
    producer = await world.ready()
    world.log.fate = lambda: "refused"
    assert await world.add(producer, A) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.fate = lambda: "ok"
    assert world.state() == "Empty"


@in_world()
async def test_without_the_partition_there_is_no_coordinator(world: World) -> None:
    producer = await world.ready()
    world.coordinator.close()
    assert await world.add(producer, A) == ErrorCode.NOT_COORDINATOR
    assert await verify(world, producer, A) == {A: ErrorCode.NOT_COORDINATOR}
    assert (await world.init()).code == ErrorCode.NOT_COORDINATOR


@in_world(partitions=50)
async def test_the_topics_own_count_decides(world: World) -> None:
    wanted = world.coordinator.partition_for("t")
    assert wanted == 116 % 50  # "t".hashCode()
    world.topics.topics[TRANSACTION_TOPIC] = (b"t" * 16, 3)
    assert world.coordinator.partition_for("t") == 116 % 3


# Queries


def listed(world: World, **filters: Any) -> ListTransactionsResponse:
    return world.coordinator.admin.list_transactions(ListTransactionsRequest(**filters))


def ids(response: ListTransactionsResponse) -> list[str]:
    return sorted(each.transactional_id for each in response.transaction_states)


@in_world()
async def test_describe(world: World) -> None:
    producer = await world.ready()
    await world.add(producer, ("orders", 3), ("clicks", 0), ("orders", 1))
    request = DescribeTransactionsRequest(transactional_ids=["t", "nobody", ""])
    found, unknown, nameless = world.coordinator.admin.describe_transactions(
        request
    ).transaction_states
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert nameless.error_code == ErrorCode.INVALID_REQUEST
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert found.transaction_start_time_ms == world.clock.wall_ms()
    assert {topic.topic: topic.partitions for topic in found.topics} == {
        "orders": [1, 3],
        "clicks": [0],
    }


@in_world()
async def test_while_it_ends_only_partitions_without_a_marker_are_shown(world: World) -> None:
    producer = await world.ready()
    await world.add(producer, A, B)
    fates = iter(("ok", "lost"))
    world.markers.fate = lambda: next(fates, "lost")
    await world.end(producer, commit=True)
    await asyncio.sleep(1)
    described = world.coordinator.admin.describe("t")
    assert described.transaction_state == "PrepareCommit"
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("orders", [1])]


@in_world()
async def test_list_and_its_filters(world: World) -> None:
    idle = await world.ready("idle")
    long = await world.ready("long")
    await world.add(long, transactional_id="long")
    await asyncio.sleep(10)
    short = await world.ready("short")
    await world.add(short, transactional_id="short")
    await asyncio.sleep(1)
    assert ids(listed(world)) == ["idle", "long", "short"]
    by_state = listed(world, state_filters=["Ongoing", "Sleeping"])
    assert ids(by_state) == ["long", "short"]
    assert by_state.unknown_state_filters == ["Sleeping"]
    assert ids(listed(world, state_filters=["Sleeping"])) == []
    assert ids(listed(world, producer_id_filters=[idle.producer_id])) == ["idle"]
    assert ids(listed(world, duration_filter=5_000, state_filters=["Ongoing"])) == ["long"]
    assert ids(listed(world, transactional_id_pattern=".o.*")) == ["long"]
    assert ids(listed(world, transactional_id_pattern="o")) == [], "the whole id has to match"
    assert ids(listed(world, transactional_id_pattern="")) == ["idle", "long", "short"]


@pytest.mark.parametrize("pattern", ["(", "[z-a]", r"(a)\1", "a{2000}{2000}"])
def test_a_pattern_that_is_none(pattern: str) -> None:
    @in_world()
    async def scenario(world: World) -> None:
        response = listed(world, transactional_id_pattern=pattern)
        assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    scenario()
