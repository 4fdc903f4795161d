from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.admin.topics import (
    HIGH_WATERMARK,
    EligibleReplicas,
    Topics,
    check_reached,
    delete_before,
)
from lakelog.client.cluster import Cluster
from lakelog.client.errors import (
    ClientError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    TopicNotFoundError,
    UnreachableError,
)
from lakelog.client.offsets import LATEST
from lakelog.protocol.fetch import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from lakelog.protocol.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
)
from lakelog.protocol.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from scripted_broker import ScriptedBroker


def created(code: int = 0, text: str | None = None) -> CreateTopicsResponse:
    row = CreatableTopicResult(name="orders", error_code=code, error_message=text)
    return CreateTopicsResponse(topics=[row])


def test_a_topic_is_created_when_its_partitions_have_leaders(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(CreateTopicsRequest, created())
    broker.leaders["orders", 1] = -1

    def electing(request: MetadataRequest) -> object:
        response = broker.metadata(request)
        broker.leaders.clear()
        return response

    broker.on(MetadataRequest, electing, broker.metadata)  # type: ignore[arg-type]
    assert Topics(cluster).create("orders", partitions=2, configs={"retention.ms": "1"})
    (request,) = broker.asked(CreateTopicsRequest)
    assert request.topics[0].configs[0].value == "1"
    assert cluster.view.leader("orders", 1) is not None


def test_an_existing_topic_is_an_error_unless_it_may_exist(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(CreateTopicsRequest, created(36))
    with pytest.raises(ClientError, match="topic 'orders': already exists"):
        Topics(cluster).create("orders")
    assert Topics(cluster).create("orders", exist_ok=True) is False


def test_a_validation_waits_for_no_topic(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.on(CreateTopicsRequest, created())
    assert Topics(cluster).create("absent", validate_only=True)
    assert broker.asked(CreateTopicsRequest)[0].validate_only


def test_a_creation_without_an_answer_is_not_repeated(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(CreateTopicsRequest, None)
    with pytest.raises(OutcomeUnknownError, match="creating topic 'orders'"):
        Topics(cluster).create("orders")
    assert len(broker.asked(CreateTopicsRequest)) == 1


def test_a_change_whose_outcome_the_broker_does_not_know_is_not_repeated(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    """A second request would fail because of the first: the topic exists, or is gone."""
    broker.on(CreateTopicsRequest, created(7, "its logs wait for space"), created(36))
    gone = [DeletableTopicResult(name="orders", error_code=code) for code in (7, 3)]
    broker.on(DeleteTopicsRequest, *(DeleteTopicsResponse(responses=[row]) for row in gone))
    more = [CreatePartitionsTopicResult(name="orders", error_code=code) for code in (7, 37)]
    broker.on(CreatePartitionsRequest, *(CreatePartitionsResponse(results=[row]) for row in more))
    topics = Topics(cluster)
    with pytest.raises(OutcomeUnknownError, match="topic 'orders': its logs wait for space"):
        topics.create("orders", exist_ok=True)
    with pytest.raises(OutcomeUnknownError, match="may or may not have been made"):
        topics.delete("orders")
    with pytest.raises(OutcomeUnknownError):
        topics.create_partitions("orders", 9)
    assert len(broker.requests) == 3


def test_a_topic_that_does_not_exist_is_final(broker: ScriptedBroker, cluster: Cluster) -> None:
    """The code is retriable, but a retry would delete nothing either."""
    gone = DeletableTopicResult(name="orders", error_code=3)
    broker.on(DeleteTopicsRequest, DeleteTopicsResponse(responses=[gone]))
    missing = CreatePartitionsTopicResult(name="orders", error_code=3)
    broker.on(CreatePartitionsRequest, CreatePartitionsResponse(results=[missing]))
    with pytest.raises(TopicNotFoundError):
        Topics(cluster).delete("orders")
    with pytest.raises(TopicNotFoundError):
        Topics(cluster).create_partitions("orders", 9)
    assert len(broker.requests) == 2


def test_fewer_partitions_are_rejected_in_the_words_of_the_broker(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    row = CreatePartitionsTopicResult(name="orders", error_code=37, error_message="it has 2")
    broker.on(CreatePartitionsRequest, CreatePartitionsResponse(results=[row]))
    with pytest.raises(ClientError, match="it has 2") as error:
        Topics(cluster).create_partitions("orders", 1)
    assert error.value.code is ErrorCode.INVALID_PARTITIONS


def test_topics_are_listed_by_name(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.topics = {"b": 1, "a": 1}
    assert [topic.name for topic in Topics(cluster).list()] == ["a", "b"]


def test_eligible_replicas_are_read_page_by_page(broker: ScriptedBroker, cluster: Cluster) -> None:
    def page(index: int, elr: list[int], last_known: list[int]) -> DescribeTopicPartitionsResponse:
        row = DescribeTopicPartitionsResponsePartition(
            partition_index=index, eligible_leader_replicas=elr, last_known_elr=last_known
        )
        topic = DescribeTopicPartitionsResponseTopic(name="orders", partitions=[row])
        return DescribeTopicPartitionsResponse(topics=[topic])

    first, second, last = page(0, [2], [3]), page(1, [], []), page(2, [], [1])
    first.next_cursor = Cursor(topic_name="orders", partition_index=1)
    second.next_cursor = Cursor(topic_name="orders", partition_index=2)
    broker.on(DescribeTopicPartitionsRequest, first, second, last)
    assert Topics(cluster).eligible("orders") == {
        0: EligibleReplicas((2,), (3,)),
        2: EligibleReplicas((), (1,)),
    }
    asked = broker.asked(DescribeTopicPartitionsRequest)
    assert [each.cursor and each.cursor.partition_index for each in asked] == [None, 1, 2]


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
