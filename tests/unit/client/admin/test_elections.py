from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.admin.elections import Elected, Elections, ReplicaEnd
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError
from lakelog.protocol.fetch import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from lakelog.protocol.replicas import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from scripted_broker import ScriptedBroker

E = ErrorCode


def test_replicas_without_an_answer_are_missing(broker: ScriptedBroker, cluster: Cluster) -> None:
    rows = [
        ListOffsetsPartitionResponse(partition_index=0, offset=7, leader_epoch=3),
        ListOffsetsPartitionResponse(partition_index=1, error_code=E.KAFKA_STORAGE_ERROR),
    ]
    topics = [ListOffsetsTopicResponse(name="t", partitions=rows)]
    broker.on(ListOffsetsRequest, ListOffsetsResponse(topics=topics))
    cluster.refresh([])
    (node,) = cluster.view.brokers
    found = Elections(cluster).log_ends({("t", 0): [node, 99], ("t", 1): [node]})
    assert found == {("t", 0): {node: ReplicaEnd(3, 7)}, ("t", 1): {}}
    (request,) = broker.asked(ListOffsetsRequest)
    assert request.replica_id == -2


def answer(*codes: int, error: int = 0) -> ElectLeadersResponse:
    rows = [
        PartitionResult(partition_id=number, error_code=code) for number, code in enumerate(codes)
    ]
    results = [ReplicaElectionResult(topic="t", partition_result=rows)]
    return ElectLeadersResponse(error_code=error, replica_election_results=results)


def test_an_unclean_election_names_the_leaders(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.on(ElectLeadersRequest, answer(0, E.INVALID_REQUEST))
    found = Elections(cluster).unclean({("t", 1): 3, ("t", 0): 2})
    assert found == {
        ("t", 0): Elected(E.NONE, "NONE"),
        ("t", 1): Elected(E.INVALID_REQUEST, "INVALID_REQUEST"),
    }
    (request,) = broker.asked(ElectLeadersRequest)
    (topic,) = list(request.topic_partitions or [])
    assert (request.election_type, topic.partitions, topic.leaders) == (1, [0, 1], [2, 3])


def test_a_preferred_election_names_none(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.on(ElectLeadersRequest, answer(0), answer())
    Elections(cluster).preferred([("t", 0)])
    Elections(cluster).preferred(None)
    named, unnamed = broker.asked(ElectLeadersRequest)
    (topic,) = list(named.topic_partitions or [])
    assert (named.election_type, topic.leaders) == (0, [])
    assert unnamed.topic_partitions is None


def test_an_error_of_the_whole_election_is_raised(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.on(ElectLeadersRequest, answer(error=E.CLUSTER_AUTHORIZATION_FAILED))
    with pytest.raises(ClientError) as caught:
        Elections(cluster).preferred(None)
    assert caught.value.code is E.CLUSTER_AUTHORIZATION_FAILED
