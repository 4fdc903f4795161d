"""Adding and verifying partitions; describing and listing transactions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC, PartitionCodes
from lakelog.protocol.describe_transactions import DescribeTransactionsRequest
from lakelog.protocol.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from transaction_setup import BUMPING, Producer, Setup, in_virtual_time

NONE = ErrorCode.NONE
A, B = ("orders", 0), ("orders", 1)


async def verify(
    setup: Setup, producer: Producer, *keys: tuple[str, int], add: bool = False
) -> PartitionCodes:
    return await setup.coordinator.verify("t", *producer, keys, add=add)


@in_virtual_time()
async def test_kip_890_only_added_partitions_are_verified(setup: Setup) -> None:
    producer = await setup.ready()
    assert await verify(setup, producer, A) == {A: ErrorCode.TRANSACTION_ABORTABLE}
    await setup.add(producer, A)
    assert await verify(setup, producer, A, B) == {A: NONE, B: ErrorCode.TRANSACTION_ABORTABLE}
    older = Producer(producer.producer_id, producer.epoch - 1)
    assert await verify(setup, older, A) == {A: ErrorCode.PRODUCER_FENCED}
    assert await verify(setup, Producer(1, 0), A) == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@in_virtual_time()
async def test_verification_may_add(setup: Setup) -> None:
    producer = await setup.ready()
    assert await verify(setup, producer, A, add=True) == {A: NONE}
    assert await verify(setup, producer, A) == {A: NONE}
    assert setup.state() == "Ongoing"


@in_virtual_time()
async def test_an_ended_transaction_verifies_nothing(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, A)
    setup.markers.delay_s = lambda: 1000.0
    await setup.end(producer, commit=True)
    assert await verify(setup, producer, A) == {A: ErrorCode.CONCURRENT_TRANSACTIONS}


@in_virtual_time()
async def test_several_may_be_added_at_once(setup: Setup) -> None:
    """A producer with KIP-890 adds partitions with first batches, several at a time."""
    producer = await setup.ready()
    setup.log.delay_s = lambda: 1.0
    keys = [("orders", index) for index in range(8)]
    codes = await asyncio.gather(*(setup.add(producer, key, version=BUMPING) for key in keys))
    assert codes == [NONE] * 8
    answer = await setup.end(producer, commit=True, version=BUMPING)
    assert answer.code == NONE
    await setup.settled()
    assert {(marker.topic, marker.partition) for marker in setup.markers.written} == set(keys)


@in_virtual_time()
async def test_adding_the_same_again_writes_nothing(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, A, B)
    appends = setup.log.appends
    assert await setup.add(producer, B) == NONE
    assert setup.log.appends == appends


@in_virtual_time()
async def test_a_partition_whose_adding_failed_is_not_in_the_transaction(
    setup: Setup,
) -> None:
    producer = await setup.ready()
    setup.log.fate = lambda: "refused"
    assert await setup.add(producer, A) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    setup.log.fate = lambda: "ok"
    assert setup.state() == "Empty"


@in_virtual_time()
async def test_without_the_partition_there_is_no_coordinator(setup: Setup) -> None:
    producer = await setup.ready()
    setup.coordinator.close()
    assert await setup.add(producer, A) == ErrorCode.NOT_COORDINATOR
    assert await verify(setup, producer, A) == {A: ErrorCode.NOT_COORDINATOR}
    assert (await setup.init()).code == ErrorCode.NOT_COORDINATOR


@in_virtual_time(partitions=50)
async def test_the_topics_own_count_decides(setup: Setup) -> None:
    wanted = setup.coordinator.partition_for("t")
    assert wanted == 116 % 50  # "t".hashCode()
    setup.topics.topics[TRANSACTION_TOPIC] = (b"t" * 16, 3)
    assert setup.coordinator.partition_for("t") == 116 % 3


# Queries


def listed(setup: Setup, **filters: Any) -> ListTransactionsResponse:
    return setup.coordinator.admin.list_transactions(ListTransactionsRequest(**filters))


def ids(response: ListTransactionsResponse) -> list[str]:
    return sorted(each.transactional_id for each in response.transaction_states)


@in_virtual_time()
async def test_describe(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, ("orders", 3), ("clicks", 0), ("orders", 1))
    request = DescribeTransactionsRequest(transactional_ids=["t", "nobody", ""])
    found, unknown, nameless = setup.coordinator.admin.describe_transactions(
        request
    ).transaction_states
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert nameless.error_code == ErrorCode.INVALID_REQUEST
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert found.transaction_start_time_ms == setup.clock.wall_ms()
    assert {topic.topic: topic.partitions for topic in found.topics} == {
        "orders": [1, 3],
        "clicks": [0],
    }


@in_virtual_time()
async def test_while_it_ends_only_partitions_without_a_marker_are_shown(
    setup: Setup,
) -> None:
    producer = await setup.ready()
    await setup.add(producer, A, B)
    fates = iter(("ok", "lost"))
    setup.markers.fate = lambda: next(fates, "lost")
    await setup.end(producer, commit=True)
    await asyncio.sleep(1)
    described = setup.coordinator.admin.describe("t")
    assert described.transaction_state == "PrepareCommit"
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("orders", [1])]


@in_virtual_time()
async def test_list_and_its_filters(setup: Setup) -> None:
    idle = await setup.ready("idle")
    long = await setup.ready("long")
    await setup.add(long, transactional_id="long")
    await asyncio.sleep(10)
    short = await setup.ready("short")
    await setup.add(short, transactional_id="short")
    await asyncio.sleep(1)
    assert ids(listed(setup)) == ["idle", "long", "short"]
    by_state = listed(setup, state_filters=["Ongoing", "Sleeping"])
    assert ids(by_state) == ["long", "short"]
    assert by_state.unknown_state_filters == ["Sleeping"]
    assert ids(listed(setup, state_filters=["Sleeping"])) == []
    assert ids(listed(setup, producer_id_filters=[idle.producer_id])) == ["idle"]
    assert ids(listed(setup, duration_filter=5_000, state_filters=["Ongoing"])) == ["long"]
    assert ids(listed(setup, transactional_id_pattern=".o.*")) == ["long"]
    assert ids(listed(setup, transactional_id_pattern="o")) == [], "the whole id has to match"
    assert ids(listed(setup, transactional_id_pattern="")) == ["idle", "long", "short"]


@pytest.mark.parametrize("pattern", ["(", "[z-a]", r"(a)\1", "a{2000}{2000}"])
def test_a_pattern_that_is_none(pattern: str) -> None:
    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        response = listed(setup, transactional_id_pattern=pattern)
        assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    scenario()
