"""Requests to the leaders of many partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError, ConnectionLostError
from lakelog.client.leaders import TopicPartition, ask_leaders, ask_leaders_once
from scripted_broker import ScriptedBroker

BOTH = [("orders", 0), ("orders", 1)]


@pytest.fixture
def two(broker: ScriptedBroker) -> Iterator[Cluster]:
    """A cluster in which node 1 leads partition 0, and node 2 partition 1."""
    with ScriptedBroker(node_id=2) as other:
        broker.peers = [other]
        other.peers = [broker]
        broker.leaders = other.leaders = {("orders", 0): 1, ("orders", 1): 2}
        with Cluster(broker.address, timeout_s=10.0) as cluster:
            yield cluster


class Asked:
    """Answers with the node; fails at `failing` nodes, once each."""

    def __init__(self, failing: dict[int, ClientError]) -> None:
        self.failing = failing
        self.calls: list[tuple[int, list[TopicPartition]]] = []

    def __call__(
        self, node: int, keys: Sequence[TopicPartition], found: dict[TopicPartition, int]
    ) -> None:
        self.calls.append((node, list(keys)))
        if node in self.failing:
            raise self.failing.pop(node)
        found.update(dict.fromkeys(keys, node))


def test_each_leader_is_asked_about_its_own_partitions(two: Cluster) -> None:
    asked = Asked({})
    assert ask_leaders(two, BOTH, asked) == {("orders", 0): 1, ("orders", 1): 2}
    assert asked.calls == [(1, BOTH[:1]), (2, BOTH[1:])]


@pytest.mark.parametrize(
    "error",
    [ClientError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ConnectionLostError("reset by peer")],
)
def test_only_missing_answers_are_asked_for_again(two: Cluster, error: ClientError) -> None:
    asked = Asked({1: error})
    assert ask_leaders(two, BOTH, asked) == {("orders", 0): 1, ("orders", 1): 2}
    assert [node for node, _ in asked.calls] == [1, 2, 1]


def test_a_final_error_is_raised_after_the_other_leaders_have_answered(two: Cluster) -> None:
    asked = Asked({1: ClientError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)})
    found: dict[TopicPartition, int] = {}
    with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
        ask_leaders_once(two, BOTH, asked, found)
    assert found == {("orders", 1): 2}


def test_a_partition_without_a_leader_does_not_delay_the_others(
    two: Cluster, broker: ScriptedBroker
) -> None:
    broker.leaders["orders", 0] = -1
    asked = Asked({})
    found: dict[TopicPartition, int] = {}
    with pytest.raises(ClientError, match="orders-0 has no leader"):
        ask_leaders_once(two, BOTH, asked, found)
    assert found == {("orders", 1): 2}


def test_answers_are_kept_when_the_call_fails(two: Cluster) -> None:
    asked = Asked({1: ClientError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)})
    found: dict[TopicPartition, int] = {}
    with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
        ask_leaders(two, BOTH, asked, found)
    assert found == {("orders", 1): 2}


def test_no_partition_needs_no_request(two: Cluster) -> None:
    asked = Asked({})
    assert ask_leaders(two, [], asked) == {}
    assert asked.calls == []
