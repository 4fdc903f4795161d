from __future__ import annotations

import subprocess
import sys

import pytest

from lakelog.protocol.registry import APIS, api_for, header_is_flexible
from lakelog.wire.schema import Message

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
    "ElectLeaders": (43, 0, 2),
    "IncrementalAlterConfigs": (44, 0, 1),
    "AlterPartitionReassignments": (45, 0, 1),
    "ListPartitionReassignments": (46, 0, 0),
    "DescribeCluster": (60, 0, 2),
    "DescribeProducers": (61, 0, 0),
    "DescribeTransactions": (65, 0, 0),
    "ListTransactions": (66, 0, 2),
    "ListConfigResources": (74, 0, 1),
    "DescribeTopicPartitions": (75, 0, 0),
}


def test_the_promised_apis_and_no_others() -> None:
    found = {api.name: (api.key, api.min_version, api.max_version) for api in APIS.values()}
    assert found == RANGES


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_row_and_its_messages_agree(api: object) -> None:
    from lakelog.protocol.registry import Api

    assert isinstance(api, Api)
    assert api_for(api.request) is api
    for message in (api.request, api.response):
        assert issubclass(message, Message)
        assert message.__versions__.lowest == api.min_version
        assert message.__versions__.highest >= api.max_version
        assert message.__flexible__.lowest == api.flexible_from


def test_a_class_that_is_no_request_has_no_api() -> None:
    with pytest.raises(KeyError):
        api_for(Message)


def test_an_api_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        APIS[0].responce  # noqa: B018


def test_headers_turn_flexible_with_their_api() -> None:
    assert not header_is_flexible(0, 8)
    assert header_is_flexible(0, 9)
    assert header_is_flexible(18, 99)
    with pytest.raises(KeyError):
        header_is_flexible(4, 0)


def test_importing_the_registry_loads_no_message_module() -> None:
    program = (
        "import sys, lakelog.protocol.registry as registry\n"
        "loaded = [name for name in sys.modules if name.startswith('lakelog.protocol.')]\n"
        "assert loaded == ['lakelog.protocol.registry'], loaded\n"
        "assert registry.APIS[18].request.__name__ == 'ApiVersionsRequest'\n"
        "assert 'lakelog.protocol.api_versions' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
