"""Questions of the table engine to a broker, and the errors of a lost topic, partition or log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.base.uuids import encode_uuid
from lakelog.client import errors
from lakelog.client.errors import UnreachableError
from lakelog.client.offsets import OffsetAt
from lakelog.protocol.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from lakelog.protocol.fetch import (
    FetchRequest,
    FetchResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from lakelog.protocol.metadata import MetadataRequest
from lakelog.records.builder import BatchBuilder
from lakelog.tables.topic.client import TopicClient, TopicMeta
from lakelog.tables.topic.errors import (
    DataLossError,
    LogReplacedError,
    TopicGoneError,
    TopicMissingError,
)
from lakelog.tables.topic.offsets import OffsetRange
from scripted_broker import ScriptedBroker, records_of, topic_id

END = 12
ID = encode_uuid(topic_id("orders"))
EPOCH = 2
FIRST = ("orders", 0)


def batch(base: int, *, control: bool = False) -> bytes:
    builder = BatchBuilder()
    for number in range(3):
        builder.append(base + number, None, b"v")
    return bytes(builder.build(base_offset=base, leader_epoch=EPOCH, is_control=control))


def log_of(request: FetchRequest) -> FetchResponse:
    """Return the batch of three records at the requested offset; the second is a marker's."""
    base = request.topics[0].partitions[0].fetch_offset // 3 * 3
    return records_of(request, batch(base, control=base == 3), END)


def offsets_of(offset: int, error: int = 0) -> ListOffsetsResponse:
    row = ListOffsetsPartitionResponse(
        partition_index=0, error_code=error, offset=offset, timestamp=-1, leader_epoch=EPOCH
    )
    topic = ListOffsetsTopicResponse(name="orders", partitions=[row])
    return ListOffsetsResponse(topics=[topic])


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedBroker]:
    monkeypatch.setattr(errors, "FIRST_S", 0.001)
    with ScriptedBroker() as broker:
        broker.on(FetchRequest, log_of)
        broker.on(ListOffsetsRequest, offsets_of(END))
        yield broker


@pytest.fixture
def client(broker: ScriptedBroker) -> Iterator[TopicClient]:
    with TopicClient(broker.address, client_id="test", timeout_s=10.0) as client:
        yield client


def bases(client: TopicClient, wanted: OffsetRange) -> list[int]:
    return [header.base_offset for header, _ in client.batches(wanted)]


def restarting(broker: ScriptedBroker) -> None:
    """Have the broker close connections: more than the client tries before its first pause."""
    row = DescribeConfigsResourceResult(name="table.enable", value="true")
    found = DescribeConfigsResult(resource_type=2, resource_name="orders", configs=[row])
    broker.on(MetadataRequest, *[None] * 5, broker.metadata)
    broker.on(DescribeConfigsRequest, *[None] * 5, DescribeConfigsResponse(results=[found]))


def test_topics_and_settings_are_found_again_while_the_broker_restarts(
    broker: ScriptedBroker, client: TopicClient
) -> None:
    client.topics()
    for find in (
        client.topics,
        lambda: client.find(["orders"]),
        lambda: client.configs(["orders"], ["table.enable"]),
    ):
        restarting(broker)
        assert find()


def test_the_first_contact_fails_at_once_unless_the_cluster_is_awaited(
    broker: ScriptedBroker,
) -> None:
    restarting(broker)
    with (
        TopicClient(broker.address, client_id="test") as client,
        pytest.raises(UnreachableError),
    ):
        client.find(["orders"])
    restarting(broker)
    with TopicClient(broker.address, client_id="test", awaits_cluster=True) as client:
        assert client.find(["orders"])


def test_a_topic_has_its_id_as_stored_offsets_have_it(client: TopicClient) -> None:
    expected = {"orders": TopicMeta("orders", ID, (0, 1))}
    assert client.describe(["orders"]) == expected
    assert client.topics() == expected
    assert client.find(["orders", "missing"]) == expected


def test_a_missing_topic_is_named_with_a_similar_one(client: TopicClient) -> None:
    client.topics()
    with pytest.raises(TopicMissingError, match=r"'order'.*'orders'"):
        client.describe(["orders", "order"])


def test_added_partitions_are_found_without_a_new_client(
    broker: ScriptedBroker, client: TopicClient
) -> None:
    client.describe(["orders"])
    broker.topics["orders"] = 3
    assert client.describe(["orders"])["orders"].partitions == (0, 1, 2)


def test_no_partition_needs_no_request(broker: ScriptedBroker, client: TopicClient) -> None:
    assert not client.places({})
    assert not client.epoch_ends({})
    assert not client.log_end([])
    assert broker.requests == []


@pytest.mark.parametrize(("read_committed", "level"), [(True, 1), (False, 0)])
def test_only_the_readable_end_depends_on_the_isolation_level(
    broker: ScriptedBroker, read_committed: bool, level: int
) -> None:
    with TopicClient(broker.address, client_id="test", read_committed=read_committed) as client:
        assert client.latest_places([FIRST]) == {FIRST: OffsetAt(END, -1, EPOCH)}
        assert client.log_end([FIRST]) == {FIRST: END}
    levels = [request.isolation_level for request in broker.asked(ListOffsetsRequest)]
    assert levels == [level, 0]


def test_offsets_of_a_missing_topic_or_partition_are_an_error_of_the_query(
    client: TopicClient,
) -> None:
    for partition in (("missing", 0), ("orders", 9)):
        with pytest.raises(TopicMissingError, match=partition[0]):
            client.earliest([partition])
        with pytest.raises(TopicMissingError, match=partition[0]):
            client.epoch_ends({partition: 0})


def test_a_range_is_read_without_control_batches(client: TopicClient) -> None:
    assert bases(client, OffsetRange("orders", 0, 1, 10, ID, EPOCH)) == [0, 6, 9]
    assert bases(client, OffsetRange("orders", 0, 1, 10)) == [0, 6, 9]


def test_a_later_leader_epoch_shows_that_the_log_was_replaced(client: TopicClient) -> None:
    wanted = OffsetRange("orders", 0, 1, 10, ID, EPOCH - 1)
    with pytest.raises(LogReplacedError, match=r"before offset 0 .* epoch 2 instead of 1"):
        bases(client, wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        OffsetRange("orders", 0, 0, 3, encode_uuid(topic_id("older"))),
        OffsetRange("orders", 9, 0, 3),
        OffsetRange("missing", 0, 0, 3),
    ],
)
def test_a_range_of_a_topic_that_is_gone_is_a_loss(
    client: TopicClient, wanted: OffsetRange
) -> None:
    with pytest.raises(TopicGoneError, match=rf"^{wanted.topic}-{wanted.partition} \[0, 3\): "):
        bases(client, wanted)


def test_a_range_outside_of_the_log_is_a_loss(broker: ScriptedBroker, client: TopicClient) -> None:
    broker.on(FetchRequest, lambda request: records_of(request, b"", -1, error=1))
    broker.on(ListOffsetsRequest, offsets_of(5), offsets_of(END))
    with pytest.raises(DataLossError, match=r"has offsets 5 to 12 \(exclusive\), not 2"):
        bases(client, OffsetRange("orders", 0, 2, 5))


def test_bytes_per_offset_is_the_mean_of_a_sample(client: TopicClient) -> None:
    """Control batches count: the log holds them, and a commit's size is that of the log."""
    mean = client.bytes_per_offset("orders", 0, 0, END)
    assert mean == len(batch(0)) / 3
    assert client.bytes_per_offset("orders", 0, 5, 5) == 0
