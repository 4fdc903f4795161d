"""The search for transactions that no coordinator will end."""

from __future__ import annotations

from typing import Any

from lakelog.protocol.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from scripted_clients import ScriptedWorld, scripted_world
from simulator.checkers.laws import Law
from simulator.clients.consumers.hanging_transactions import HangingTransactionCheck
from simulator.clients.producers.transaction_requests import TIMEOUT_MS

PLACE = ("topic", 0)


def check(world: ScriptedWorld, *, ends_after_s: float, code: int = 0) -> list[str]:
    """Return the described partitions; the one of `PLACE` has an open transaction at first."""
    described = []

    def answer(request: Any) -> DescribeProducersResponse:
        (topic,) = request.topics
        (index,) = topic.partition_indexes
        described.append(f"{topic.name}-{index}")
        hangs = topic.name == "topic" and world.simulator.loop.time() - 10.0 < ends_after_s
        first = ProducerState(producer_id=7, current_txn_start_offset=3 if hangs else -1)
        idle = ProducerState(producer_id=8)
        part = PartitionResponse(
            partition_index=index, error_code=code, active_producers=[first, idle]
        )
        return DescribeProducersResponse(topics=[TopicResponse(name=topic.name, partitions=[part])])

    client = HangingTransactionCheck(world.context, "hanging", [PLACE])
    world.answer(client, (DescribeProducersRequest, answer))
    world.play(client.run())
    return described


def test_the_offsets_topic_is_searched_too() -> None:
    with scripted_world() as world:
        described = check(world, ends_after_s=0.0)
        assert set(described) == {"topic-0", "__consumer_offsets-0", "__consumer_offsets-1"}
        assert not world.findings.violations
        assert world.simulator.loop.time() < 11


def test_a_transaction_may_last_until_its_timeout() -> None:
    with scripted_world() as world:
        check(world, ends_after_s=TIMEOUT_MS / 1000)
        assert not world.findings.violations


def test_a_transaction_without_an_end_is_a_violation() -> None:
    with scripted_world() as world:
        check(world, ends_after_s=3600.0)
        assert world.findings.broken == {Law.ENDS}
        (text,) = world.findings.violations
        assert "producer 7 at 3" in text


def test_an_error_of_the_request_is_a_violation() -> None:
    with scripted_world() as world:
        check(world, ends_after_s=0.0, code=3)
        assert world.findings.broken == {Law.ANSWERS}
