"""Offsets that a group has committed."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.committed import Committed, Membership, commit_offsets, fetch_committed
from lakelog.client.errors import ClientError
from lakelog.protocol.groups import FindCoordinatorRequest
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from scripted_broker import ScriptedBroker


def committed(*rows: tuple[int, int, int], error: int = 0) -> OffsetFetchResponse:
    """Rows are index, error and offset."""
    partitions = [
        OffsetFetchResponsePartitions(
            partition_index=index,
            error_code=code,
            committed_offset=offset,
            committed_leader_epoch=4,
            metadata=None,
        )
        for index, code, offset in rows
    ]
    topics = [OffsetFetchResponseTopics(name="orders", partitions=partitions)]
    group = OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=error)
    return OffsetFetchResponse(groups=[group])


def commit_response(*codes: int) -> OffsetCommitResponse:
    rows = [
        OffsetCommitResponsePartition(partition_index=index, error_code=code)
        for index, code in enumerate(codes)
    ]
    topic = OffsetCommitResponseTopic(name="orders", partitions=rows)
    return OffsetCommitResponse(topics=[topic])


def test_a_partition_without_a_committed_offset_is_left_out(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(OffsetFetchRequest, committed((0, 0, 7), (1, 0, -1)))
    assert fetch_committed(cluster, "g") == {("orders", 0): Committed(7, "", 4)}
    (request,) = broker.asked(OffsetFetchRequest)
    assert request.groups[0].topics is None, "all partitions"
    assert request.require_stable


def test_pending_offsets_of_a_transaction_are_awaited(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    """KIP-447: the earlier offsets would let records be processed twice."""
    broker.on(OffsetFetchRequest, committed((0, 88, -1)), committed((0, 0, 7)))
    assert fetch_committed(cluster, "g", [("orders", 0)])["orders", 0].offset == 7


def test_another_coordinator_is_found_after_a_change(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(OffsetFetchRequest, committed(error=16), committed((0, 0, 7)))
    assert fetch_committed(cluster, "g")
    assert len(broker.asked(FindCoordinatorRequest)) == 2


def test_an_old_broker_gets_the_fields_of_its_version(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.versions[9] = (1, 5)
    broker.on(OffsetFetchRequest, OffsetFetchResponse())
    assert fetch_committed(cluster, "g", [("orders", 1), ("orders", 0)]) == {}
    (request,) = broker.asked(OffsetFetchRequest)
    assert request.group_id == "g"
    assert request.topics is not None
    assert request.topics[0].partition_indexes == [1, 0]


def test_a_commit_names_the_member_and_its_generation(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(OffsetCommitRequest, commit_response(0))
    commit_offsets(cluster, "g", {("orders", 0): Committed(5, "note", 2)}, Membership("m", 3, "i"))
    (request,) = broker.asked(OffsetCommitRequest)
    assert (request.member_id, request.generation_id_or_member_epoch) == ("m", 3)
    assert request.group_instance_id == "i"
    row = request.topics[0].partitions[0]
    assert (row.committed_offset, row.committed_leader_epoch, row.committed_metadata) == (
        5,
        2,
        "note",
    )


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_commit_of_a_former_member_is_an_error(
    broker: ScriptedBroker, cluster: Cluster, code: ErrorCode
) -> None:
    broker.on(OffsetCommitRequest, commit_response(0, code))
    rows = {("orders", 0): Committed(5), ("orders", 1): Committed(6)}
    with pytest.raises(ClientError, match="commit of orders-1 for group 'g'") as error:
        commit_offsets(cluster, "g", rows)
    assert error.value.code is code
    assert len(broker.asked(OffsetCommitRequest)) == 1
