from __future__ import annotations

import pytest

from lakelog.client.admin.records import HIGH_WATERMARK, check_reached, delete_before
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError, OffsetOutOfRangeError, UnreachableError
from lakelog.client.offsets import LATEST
from lakelog.protocol.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from lakelog.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from scripted_broker import ScriptedBroker

KEY = ("orders", 0)


def deleted(code: int = 0) -> DeleteRecordsResponse:
    row = DeleteRecordsPartitionResult(partition_index=0, low_watermark=5, error_code=code)
    return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name="orders", partitions=[row])])


def bounds(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Return 3 and 9 as the bounds of the partition."""
    row = request.topics[0].partitions[0]
    found = ListOffsetsPartitionResponse(
        partition_index=row.partition_index, offset=9 if row.timestamp == LATEST else 3
    )
    topic = ListOffsetsTopicResponse(name="orders", partitions=[found])
    return ListOffsetsResponse(topics=[topic])


@pytest.mark.parametrize("offset", [HIGH_WATERMARK, 0, 9])
def test_offsets_up_to_the_end_may_be_deleted(
    broker: ScriptedBroker, cluster: Cluster, offset: int
) -> None:
    broker.on(ListOffsetsRequest, bounds)
    check_reached(cluster, {KEY: offset})


@pytest.mark.parametrize("offset", [-2, 10])
def test_an_offset_beyond_the_end_is_rejected_before_a_deletion(
    broker: ScriptedBroker, cluster: Cluster, offset: int
) -> None:
    broker.on(ListOffsetsRequest, bounds)
    with pytest.raises(OffsetOutOfRangeError, match=rf"3 to 9 \(exclusive\), not {offset}"):
        check_reached(cluster, {KEY: offset})


def test_the_new_start_is_returned(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.on(DeleteRecordsRequest, deleted())
    assert delete_before(cluster, KEY, HIGH_WATERMARK) == 5
    (request,) = broker.asked(DeleteRecordsRequest)
    assert request.topics[0].partitions[0].offset == -1


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (44, "orders-0 is only compacted: its records are removed by key"),
        (56, "the records may or may not be deleted: free space and retry"),
        (1, "orders-0 has no offset 7"),
        (29, "orders-0: not allowed by the broker"),
    ],
)
def test_each_error_says_what_to_do(
    broker: ScriptedBroker, cluster: Cluster, code: int, text: str
) -> None:
    broker.on(DeleteRecordsRequest, deleted(code))
    with pytest.raises(ClientError, match=text):
        delete_before(cluster, KEY, 7)


def test_a_lost_answer_may_be_repeated(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.on(DeleteRecordsRequest, None)
    with pytest.raises(UnreachableError) as error:
        delete_before(cluster, KEY, 7)
    assert error.value.retriable
