"""Consumer groups of either protocol."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.admin.groups import Groups, Lag
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError, OutcomeUnknownError
from lakelog.client.offsets import EARLIEST, LATEST
from lakelog.protocol.fetch import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from lakelog.protocol.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from lakelog.protocol.groups import DescribedConsumerGroup as ConsumerGroup
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from scripted_broker import ScriptedBroker

KEY = ("orders", 0)


def classic(state: str, code: int = 0) -> DescribeGroupsResponse:
    row = DescribedGroup(error_code=code, group_id="g", group_state=state)
    return DescribeGroupsResponse(groups=[row])


def consumer(code: int = 0) -> ConsumerGroupDescribeResponse:
    row = ConsumerGroup(error_code=code, group_id="g", group_state="Stable", group_epoch=3)
    return ConsumerGroupDescribeResponse(groups=[row])


def commits(code: int) -> OffsetCommitResponse:
    row = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    topic = OffsetCommitResponseTopic(name="orders", partitions=[row])
    return OffsetCommitResponse(topics=[topic])


def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Return the bounds 3 and 9 of a partition that has no record at any time."""
    row = request.topics[0].partitions[0]
    found = {EARLIEST: 3, LATEST: 9}.get(row.timestamp, -1)
    answer = ListOffsetsPartitionResponse(partition_index=row.partition_index, offset=found)
    topic = ListOffsetsTopicResponse(name="orders", partitions=[answer])
    return ListOffsetsResponse(topics=[topic])


def test_groups_of_all_brokers_are_listed_once(broker: ScriptedBroker, cluster: Cluster) -> None:
    with ScriptedBroker(node_id=2) as other:
        broker.peers = [other]
        other.peers = [broker]
        for each, names in ((broker, ["b", "c"]), (other, ["c", "a"])):
            rows = [ListedGroup(group_id=name, protocol_type="consumer") for name in names]
            each.on(ListGroupsRequest, ListGroupsResponse(groups=rows))
        assert [row.group_id for row in Groups(cluster).list()] == ["a", "b", "c"]


@pytest.mark.parametrize("first", [classic("Dead"), classic("", 69)])
def test_a_group_that_is_not_classic_is_one_of_consumers(
    broker: ScriptedBroker, cluster: Cluster, first: DescribeGroupsResponse
) -> None:
    """Older versions answer "Dead", newer ones GROUP_ID_NOT_FOUND."""
    broker.on(DescribeGroupsRequest, first)
    broker.on(ConsumerGroupDescribeRequest, consumer())
    found = Groups(cluster).describe("g")
    assert (found.group_type, found.epoch) == ("consumer", 3)


def test_a_group_of_neither_protocol_does_not_exist(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(ConsumerGroupDescribeRequest, consumer(69))
    broker.on(DescribeGroupsRequest, classic("", 69))
    with pytest.raises(ClientError) as error:
        Groups(cluster).describe("g")
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    broker.on(DescribeGroupsRequest, classic("Dead"))
    assert Groups(cluster).describe("g").state == "Dead"


def test_a_group_with_members_is_not_deleted(broker: ScriptedBroker, cluster: Cluster) -> None:
    row = DeletableGroupResult(group_id="g", error_code=68)
    broker.on(DeleteGroupsRequest, DeleteGroupsResponse(results=[row]))
    with pytest.raises(ClientError, match="group 'g': the group has members"):
        Groups(cluster).delete("g")


@pytest.mark.parametrize("code", [25, 27])
def test_offsets_of_a_group_with_members_are_not_reset(
    broker: ScriptedBroker, cluster: Cluster, code: int
) -> None:
    """Its members would overwrite them."""
    cluster.timeout_s = 0.05
    broker.on(OffsetCommitRequest, commits(code))
    with pytest.raises(ClientError) as error:
        Groups(cluster).commit("g", {KEY: 5})
    assert error.value.code is ErrorCode.NON_EMPTY_GROUP
    assert "Stop its consumers first" in error.value.hint


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_time_after_the_last_record_is_the_end(
    broker: ScriptedBroker, cluster: Cluster, dry_run: bool
) -> None:
    broker.on(ListOffsetsRequest, offsets)
    broker.on(OffsetCommitRequest, commits(0))
    assert Groups(cluster).reset("g", {KEY: 1_000}, dry_run=dry_run) == {KEY: 9}
    assert bool(broker.asked(OffsetCommitRequest)) is not dry_run


def test_lag_is_never_negative() -> None:
    """The end was requested before the offset was committed."""
    assert Lag(5, 9).records == 4
    assert Lag(9, 5).records == 0


def test_a_deletion_without_an_answer_is_not_repeated(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    """After a success, a second request would not find the group."""
    gone = DeletableGroupResult(group_id="g", error_code=69)
    broker.on(DeleteGroupsRequest, None, DeleteGroupsResponse(results=[gone]))
    with pytest.raises(OutcomeUnknownError, match="deleting group 'g' may or may not"):
        Groups(cluster).delete("g")
    assert len(broker.asked(DeleteGroupsRequest)) == 1
