from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.admin.brokers import Brokers, Elected, Elections, Feature, Features, ReplicaEnd
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError
from lakelog.protocol.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from lakelog.protocol.connections import (
    ApiVersionsRequest,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
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


def test_brokers_are_listed_by_id_with_fenced_ones(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    rows = [
        DescribeClusterBroker(broker_id=2, host="b", port=2, is_fenced=True),
        DescribeClusterBroker(broker_id=1, host="a", port=1, rack="r"),
    ]
    response = DescribeClusterResponse(cluster_id="c", controller_id=1, brokers=rows)
    broker.on(DescribeClusterRequest, response)
    found = Brokers(cluster).describe()
    assert (found.cluster_id, found.controller_id) == ("c", 1)
    assert [(each.node_id, each.rack, each.is_fenced) for each in found.brokers] == [
        (1, "r", False),
        (2, None, True),
    ]
    (request,) = broker.asked(DescribeClusterRequest)
    assert request.include_fenced_brokers


def test_a_broker_that_cannot_be_unregistered_is_an_error(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    response = UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message="broker 7 is not registered"
    )
    broker.on(UnregisterBrokerRequest, response, UnregisterBrokerResponse())
    with pytest.raises(ClientError, match="broker 7 is not registered") as caught:
        Brokers(cluster).unregister(7)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    Brokers(cluster).unregister(3)
    assert [each.broker_id for each in broker.asked(UnregisterBrokerRequest)] == [7, 3]


@pytest.fixture
def features(broker: ScriptedBroker, cluster: Cluster) -> Features:
    versions = broker.api_versions(ApiVersionsRequest())
    versions.finalized_features = [
        FinalizedFeatureKey(name="t", max_version_level=2, min_version_level=2)
    ]
    versions.supported_features = [
        SupportedFeatureKey(name="t", min_version=0, max_version=2),
        SupportedFeatureKey(name="g", min_version=1, max_version=1),
    ]
    broker.on(ApiVersionsRequest, versions)
    return Features(cluster)


def test_features_have_their_finalized_levels(features: Features) -> None:
    assert features.levels() == {"t": 2}


def test_each_broker_is_asked_for_the_levels_that_it_supports(features: Features) -> None:
    group, transactions = features.describe()
    (node,) = group.supported
    assert group == Feature("g", 0, {node: (1, 1)})
    assert (transactions.level, transactions.lowest, transactions.highest) == (2, 0, 2)


def test_all_brokers_limit_the_levels() -> None:
    feature = Feature("t", 1, {1: (0, 2), 2: (1, 3)})
    assert (feature.lowest, feature.highest) == (1, 2)
    assert Feature("t", 1, {1: (0, 2)}, lacking=(2,)).highest == 0


def test_a_change_names_its_kind(broker: ScriptedBroker, features: Features) -> None:
    broker.on(UpdateFeaturesRequest, UpdateFeaturesResponse())
    features.update({"t": 2}, {"g": 1}, validate_only=True)
    features.update({}, {"g": 1}, is_unsafe=True)
    checked, made = broker.asked(UpdateFeaturesRequest)
    kinds = [(each.feature, each.upgrade_type) for each in checked.feature_updates]
    assert kinds == [("t", 1), ("g", 2)]
    assert checked.validate_only and not made.validate_only
    assert made.feature_updates[0].upgrade_type == 3


@pytest.mark.parametrize("in_row", [False, True])
def test_a_refusal_has_the_text_of_the_broker(
    in_row: bool, broker: ScriptedBroker, features: Features
) -> None:
    """Kafka before version 2 of the API has it in the results."""
    code = ErrorCode.INVALID_UPDATE_VERSION
    row = UpdatableFeatureResult(feature="t", error_code=code, error_message="too high")
    response = UpdateFeaturesResponse(error_code=code, error_message="too high")
    if in_row:
        response = UpdateFeaturesResponse(results=[row])
        versions = broker.api_versions(ApiVersionsRequest())
        next(each for each in versions.api_keys if each.api_key == 57).max_version = 1
        broker.on(ApiVersionsRequest, versions)
    broker.on(UpdateFeaturesRequest, response)
    with pytest.raises(ClientError, match="too high") as caught:
        features.update({"t": 9}, {})
    assert caught.value.code is code


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
