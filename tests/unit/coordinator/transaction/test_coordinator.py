from __future__ import annotations

import asyncio
from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.protocol.transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from transaction_setup import Setup, in_virtual_time

A = ("orders", 0)


@in_virtual_time()
async def test_without_the_partition_there_is_no_coordinator(setup: Setup) -> None:
    producer = await setup.ready()
    setup.coordinator.close()
    assert await setup.add(producer, A) == ErrorCode.NOT_COORDINATOR
    assert await setup.coordinator.verify("t", *producer, [A], add=False) == {
        A: ErrorCode.NOT_COORDINATOR
    }
    assert (await setup.init()).code == ErrorCode.NOT_COORDINATOR


@in_virtual_time(partitions=50)
async def test_the_topics_own_count_decides(setup: Setup) -> None:
    wanted = setup.coordinator.partition_for("t")
    assert wanted == 116 % 50  # "t".hashCode()
    setup.topics.topics[TRANSACTION_TOPIC] = (b"t" * 16, 3)
    assert setup.coordinator.partition_for("t") == 116 % 3


B = ("orders", 1)


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


@in_virtual_time()
async def test_a_list_without_the_ids_of_a_led_partition_is_refused(setup: Setup) -> None:
    """A transaction that is absent from a list counts as hanging."""
    await setup.ready()
    setup.log.leading = [0]
    assert not listed(setup).error_code
    setup.log.leading = [0, 4711]
    assert listed(setup).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
