from __future__ import annotations

import pytest

from lakelog.protocol.api import Api, api_for
from lakelog.protocol.registry import APIS

# The stable ranges that the first version of the project promises.
RANGES = {
    "Produce": (0, 3, 13),
    "Fetch": (1, 4, 18),
    "ListOffsets": (2, 1, 11),
    "Metadata": (3, 0, 13),
    "OffsetCommit": (8, 2, 10),
    "OffsetFetch": (9, 1, 10),
    "FindCoordinator": (10, 0, 6),
    "JoinGroup": (11, 0, 9),
    "Heartbeat": (12, 0, 4),
    "LeaveGroup": (13, 0, 5),
    "SyncGroup": (14, 0, 5),
    "DescribeGroups": (15, 0, 6),
    "ListGroups": (16, 0, 5),
    "ApiVersions": (18, 0, 5),
    "CreateTopics": (19, 2, 7),
    "DeleteTopics": (20, 1, 6),
    "DeleteRecords": (21, 0, 2),
    "InitProducerId": (22, 0, 5),
    "OffsetForLeaderEpoch": (23, 2, 4),
    "AddPartitionsToTxn": (24, 0, 5),
    "AddOffsetsToTxn": (25, 0, 4),
    "EndTxn": (26, 0, 5),
    "WriteTxnMarkers": (27, 1, 2),
    "TxnOffsetCommit": (28, 0, 6),
    "DescribeConfigs": (32, 1, 4),
    "AlterConfigs": (33, 0, 2),
    "DescribeLogDirs": (35, 1, 5),
    "CreatePartitions": (37, 0, 3),
    "DeleteGroups": (42, 0, 3),
    "ElectLeaders": (43, 0, 2),
    "IncrementalAlterConfigs": (44, 0, 1),
    "AlterPartitionReassignments": (45, 0, 1),
    "ListPartitionReassignments": (46, 0, 0),
    "OffsetDelete": (47, 0, 0),
    "DescribeCluster": (60, 0, 2),
    "DescribeProducers": (61, 0, 0),
    "DescribeTransactions": (65, 0, 0),
    "ListTransactions": (66, 0, 2),
    "ConsumerGroupHeartbeat": (68, 0, 1),
    "ConsumerGroupDescribe": (69, 0, 1),
    "ListConfigResources": (74, 0, 1),
    "DescribeTopicPartitions": (75, 0, 0),
}


def test_the_promised_apis_are_declared_in_exactly_the_promised_versions() -> None:
    """docs/api-support.md has the APIs beyond these."""
    found = {api.name: (api.key, api.min_version, api.max_version) for api in APIS.values()}
    assert found.items() >= RANGES.items()


def test_apis_are_in_the_order_of_their_keys() -> None:
    assert list(APIS) == sorted(APIS)
    assert all(api.key == key for key, api in APIS.items())


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_request_and_its_response_have_the_same_versions(api: Api) -> None:
    assert api_for(api.request) is api
    for message in (api.request, api.response):
        assert message.__versions__.lowest == api.min_version
        assert message.__versions__.highest >= api.max_version
        is_ever_flexible = api.max_version in message.__flexible__
        assert is_ever_flexible == (api.flexible_from <= api.max_version)
        assert not is_ever_flexible or message.__flexible__.lowest == api.flexible_from


def test_the_unstable_version_of_a_message_is_not_of_its_api() -> None:
    newest = {api.name: api.request.__versions__.highest for api in APIS.values()}
    unstable = [api.name for api in APIS.values() if api.max_version < newest[api.name]]
    assert unstable == ["InitProducerId"]
