"""DescribeTopicPartitions, page by page, and the other APIs that describe or move partitions."""

from __future__ import annotations

from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.protocol.configs import ListConfigResourcesRequest
from lakelog.protocol.metadata import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from lakelog.protocol.replicas import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from wire_client import WireClient, create_topic, described

TOPIC, BROKER = 2, 4


def _page(wire: WireClient, names: list[str], limit: int, cursor: Cursor | None) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    return wire.call(request, 0)


def test_pages_of_partitions_meet_without_gap(wire: WireClient, unused: str) -> None:
    names = [f"{unused}-{dead_letter}" for dead_letter in "abc"]
    for name, count in zip(names, (3, 1, 4), strict=True):
        create_topic(wire, name, count)
    for limit in (1, 2, 3, 8, 100):
        seen, cursor, pages = [], None, 0
        while cursor is not None or not pages:
            page = _page(wire, names[::-1], limit, cursor)
            got = [(t.name, p.partition_index) for t in page.topics for p in t.partitions]
            assert 0 < len(got) <= limit
            seen += got
            cursor, pages = page.next_cursor, pages + 1
        assert seen == [
            (name, n) for name, count in zip(names, (3, 1, 4), strict=True) for n in range(count)
        ]
        assert pages == -(-8 // limit)


def test_a_partition_is_described_as_metadata_does(wire: WireClient, topic: str) -> None:
    (found,) = _page(wire, [topic], 10, None).topics
    known = described(wire, topic)
    (partition,), (same,) = found.partitions, known.partitions
    assert (found.topic_id, found.is_internal) == (known.topic_id, False)
    assert partition.leader_id == same.leader_id
    assert partition.leader_epoch == same.leader_epoch
    assert partition.replica_nodes == same.replica_nodes == partition.isr_nodes
    assert partition.eligible_leader_replicas == partition.last_known_elr == []


def test_all_topics_are_described_when_none_is_named(wire: WireClient, topic: str) -> None:
    assert topic in {found.name for found in _page(wire, [], 2000, None).topics}


def test_a_partition_may_move_to_where_it_is(wire: WireClient, topic: str) -> None:
    (node,) = described(wire, topic).partitions[0].replica_nodes
    for version in (0, 1):
        move = ReassignableTopic(
            name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=[node])]
        )
        response = wire.call(AlterPartitionReassignmentsRequest(topics=[move]), version)
        assert response.error_code == 0
        assert response.responses[0].partitions[0].error_code == 0
    assert wire.call(ListPartitionReassignmentsRequest(topics=None), 0).topics == []


def test_no_partition_needs_an_election(wire: WireClient, topic: str) -> None:
    for version in range(3):
        response = wire.call(ElectLeadersRequest(topic_partitions=None), version)
        assert (response.error_code, response.replica_election_results) == (0, [])


def test_describe_configs_lists_every_topic_setting(wire: WireClient, topic: str) -> None:
    (node,) = described(wire, topic).partitions[0].replica_nodes
    every = wire.call(ListConfigResourcesRequest(), 1)
    found = {(entry.resource_type, entry.resource_name) for entry in every.config_resources}
    assert {(TOPIC, topic), (BROKER, str(node))} <= found
    topics = wire.call(ListConfigResourcesRequest(resource_types=[TOPIC]), 1)
    assert {entry.resource_type for entry in topics.config_resources} == {TOPIC}
    unknown = wire.call(ListConfigResourcesRequest(resource_types=[99]), 1)
    assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION
