"""Responses to decoded requests, from the results of reads."""

from __future__ import annotations

from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.fetch import DivergingEpoch, FetchRequest, FetchResponse, PartitionData
from lakelog.replica.divergence import DivergedLog
from lakelog.replica.fetch_session import FetchPlan, FetchSession, FetchTarget
from lakelog.replica.role import NotLeaderError
from lakelog.server.fetches.reading import NO_RECORDS, PartitionRead, ReadResult, read
from lakelog.server.fetches.response import FetchReply
from lakelog.server.requests.context import DEFERRED
from memory_broker import Asked, MemoryBroker


def sent(
    world: MemoryBroker,
    *results: ReadResult,
    session: FetchSession | None = None,
    committed: bool = False,
) -> Asked[Any]:
    """Reply with the results of the partitions of `orders`, which follow each other."""
    targets = [FetchTarget("orders", index, 0, 1 << 20, -1, -1) for index in range(len(results))]
    reads: list[PartitionRead] = [
        (target, world.partition("orders", target.partition), result)
        for target, result in zip(targets, results, strict=True)
    ]

    def handle(broker: Any, context: Any, request: FetchRequest) -> Any:
        plan = FetchPlan(targets, session, incremental=session is not None)
        FetchReply(broker, context, plan, committed=committed).send(reads)
        return DEFERRED

    return world.start(handle, FetchRequest(), 16)


def partitions(response: FetchResponse) -> list[PartitionData]:
    return [data for topic in response.responses for data in topic.partitions]


def test_an_error_has_no_offsets_is_counted_and_names_the_leader(world: MemoryBroker) -> None:
    world.create("orders")
    asked = sent(world, NotLeaderError(2, 7))
    (data,) = partitions(asked.response())
    assert (data.error_code, data.high_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (2, 7)
    assert world.broker.requests.errors["Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER] == 1
    assert asked.context.was_rejected


def test_a_diverging_epoch_is_no_error(world: MemoryBroker) -> None:
    world.create("orders")
    asked = sent(world, DivergedLog(3, 9))
    (data,) = partitions(asked.response())
    assert (data.error_code, data.high_watermark) == (0, 0)
    assert data.diverging_epoch == DivergingEpoch(epoch=3, end_offset=9)
    assert not world.broker.requests.errors
    assert not asked.context.was_rejected


def test_records_are_counted_and_partitions_of_a_topic_share_an_entry(world: MemoryBroker) -> None:
    world.create("orders", 2)
    world.append("orders", 0)
    partition = world.partition("orders", 0)
    target = FetchTarget("orders", 0, 0, 1 << 20, -1, -1)
    response = sent(world, read(partition, target, 1 << 20, committed=False), NO_RECORDS).response()
    assert len(response.responses) == 1
    sizes = [len(data.records or b"") for data in partitions(response)]
    assert sizes == [partition.log.size, 0]
    assert partition.fetched_bytes == partition.log.size


def test_read_committed_has_a_list_of_aborted_transactions_also_if_it_is_empty(
    world: MemoryBroker,
) -> None:
    world.create("orders")
    for committed, aborted in ((False, None), (True, [])):
        (data,) = partitions(sent(world, NO_RECORDS, committed=committed).response())
        assert data.aborted_transactions == aborted


def test_a_session_omits_partitions_without_changes(world: MemoryBroker) -> None:
    world.create("orders", 2)
    session = FetchSession(5, False, 0.0)
    response = sent(world, NO_RECORDS, KafkaError(ErrorCode.CORRUPT_MESSAGE), session=session)
    assert response.response().session_id == 5
    assert len(partitions(response.response())) == 2, "the client knows no offsets yet"
