"""The topics and clients of each workload, on one of several brokers."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.protocol.topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from scripted_clients import ScriptedConnection
from simulator import World
from simulator.clients.client import Client
from simulator.cluster import plan as cluster
from simulator.plan import WORKLOADS, Plan
from simulator.workloads import Workloads


def filled(*names: str) -> tuple[World, Workloads, dict[str, dict[str, Any]]]:
    """Return a world, the workloads of its second broker, and settings of created topics."""
    world = World(1, Plan(workloads=frozenset(names)), brokers=2)
    workloads = Workloads(world.context, world.brokers.hosts[1])
    hand = Client(world.context, workloads.named("hand"))
    created = CreateTopicsResponse(topics=[CreatableTopicResult(name="topic")])
    hand.connection = broker = ScriptedConnection(hand, {CreateTopicsRequest: [created]})
    world.simulator.loop.run_until_complete(workloads.fill(hand))
    world.simulator.loop.close()
    topics = {
        topic.name: {entry.name: entry.value for entry in topic.configs}
        for request in broker.sent(CreateTopicsRequest)
        for topic in request.topics
    }
    return world, workloads, topics


@pytest.mark.parametrize("name", WORKLOADS)
def test_each_workload_has_topics_and_clients_of_its_own_broker(name: str) -> None:
    world, workloads, topics = filled(name)
    internal = {"__consumer_offsets", "__transaction_state"}
    assert workloads.clients
    assert {topic for topic, _ in workloads.topic_partitions} == topics.keys() - internal
    names = [client.name for client in workloads.clients]
    assert len(set(names)) == len(names)
    for client in workloads.clients:
        assert client.home is world.brokers.hosts[1]
        assert client.replaced().home is client.home


def test_only_planned_workloads_run() -> None:
    _, workloads, topics = filled()
    assert workloads.clients == []
    assert topics.keys() == {"__consumer_offsets", "__transaction_state"}


def test_workloads_of_one_plan_share_no_client_name() -> None:
    _, workloads, _ = filled(*WORKLOADS, *cluster.WORKLOADS, *dict(cluster.LATER_WORKLOADS))
    names = [client.name for client in workloads.clients]
    assert len(set(names)) == len(names)


def test_checkers_know_which_records_may_be_missing() -> None:
    world, workloads, topics = filled("compaction", "retention", "plain")
    for topic_partition in workloads.topic_partitions:
        settings, partition = topics[topic_partition[0]], world.records.partition(topic_partition)
        assert partition.compacted is (settings.get("cleanup.policy") == "compact")
        assert (partition.retention is not None) is ("retention.ms" in settings)
        assert partition.has_times is ("retention.ms" not in settings)
