from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from counted_work import work_run
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.fetch import (
    DivergingEpoch,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from lakelog.replica.fetch_session import FetchPlan, FetchSession, FetchTarget
from lakelog.replica.partition import Partition
from lakelog.replica.role import NotLeaderError
from lakelog.server.fetches import pending
from lakelog.server.fetches.pending import FetchReply, PendingFetch
from lakelog.server.fetches.reading import (
    NO_RECORDS,
    DivergedLog,
    PartitionRead,
    ReadResult,
    ReadWait,
    read,
)
from lakelog.server.handlers.fetch import fetch
from lakelog.server.requests.context import DEFERRED
from memory_broker import Asked, MemoryBroker


def start(
    world: MemoryBroker,
    *indexes: int,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    wait_ms: int = 500,
    version: int = 12,
) -> Asked[Any]:
    """Fetch partitions of `orders` from their starts."""
    entries = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in indexes
    ]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic="orders", partitions=entries)],
    )
    return world.start(fetch, request, version)


def results(asked: Asked[Any]) -> list[PartitionData]:
    return [each for topic in asked.response().responses for each in topic.partitions]


class Job:
    """A preparation of a log that ends with a given error of the device."""

    path = Path("log")
    start = 0

    def __init__(self, failure: OSError | None = None) -> None:
        self.failure = failure
        self.key = id(self)
        self.runs = 0
        self.is_abandoned = False

    def run(self) -> None:
        self.runs += 1

    def finish(self) -> None:
        pass

    def abandon(self) -> None:
        self.is_abandoned = True


@pytest.fixture
def jobs(world: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """`orders` with a record in partition 0; partition 1 is never ready, for a new job each time.

    The failure of the first job in the list is that of all.
    """
    world.create("orders", 2)
    world.append("orders", 0)
    made: list[Job] = [Job()]

    def read_unless_unready(
        partition: Partition, target: FetchTarget, left: int, **options: Any
    ) -> ReadResult:
        if target.partition == 0:
            return read(partition, target, left, **options)
        made.append(Job(made[0].failure))
        return ReadWait(made[-1])

    monkeypatch.setattr(pending, "read", read_unless_unready)
    return made


def test_a_fetch_wakes_for_each_of_its_partitions_once(world: MemoryBroker) -> None:
    world.create("orders", 2)
    asked = start(world, 0)
    targets = [
        FetchTarget(topic, index, 0, 1, -1, -1)
        for topic, index in [("orders", 1), ("orders", 0), ("orders", 1), ("gone", 0)]
    ]
    plan = FetchPlan(targets, None, incremental=False)
    reply = FetchReply(world.broker, asked.context, plan, committed=False)
    fetch = PendingFetch(world.broker, asked.context, FetchRequest(), plan, reply, 0.0, None)
    assert fetch.keys() == [world.partition("orders", index).key for index in (1, 0)]


def test_found_records_are_released_and_uncounted_while_a_fetch_waits(world: MemoryBroker) -> None:
    """The range would keep the files of a deleted topic open."""
    world.create("orders")
    world.append("orders")
    size = world.partition("orders").log.size
    asked = start(world, 0, min_bytes=size + 1)
    assert not asked.is_answered
    assert world.partition("orders").fetched_bytes == 0
    found = world.partition("orders").read(0, 1 << 20, min_one=True)
    assert found is not None
    assert found._handle.readers == 1, "no range but this one"
    found.release()
    assert len(results(asked)[0].records) == size
    assert world.partition("orders").fetched_bytes == size


def test_more_bytes_than_a_response_may_have_are_not_awaited(world: MemoryBroker) -> None:
    world.create("orders")
    world.append("orders", count=100)
    assert start(world, 0, min_bytes=1 << 20, max_bytes=100, wait_ms=60_000).is_answered


def test_a_fetch_of_a_lost_connection_leaves_the_purgatory(world: MemoryBroker) -> None:
    world.create("orders")
    asked = start(world, 0, wait_ms=60_000)
    assert len(world.broker.purgatory) == 1
    asked.context.connection.close()
    assert len(world.broker.purgatory) == 0


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (10, ErrorCode.NONE)]
)
def test_a_client_that_cannot_read_zstd_gets_an_error(
    world: MemoryBroker, version: int, code: ErrorCode
) -> None:
    """KIP-110."""
    world.create("orders", compression_type="zstd")
    world.append("orders")
    (found,) = results(start(world, 0, version=version))
    assert (found.error_code, bool(found.records)) == (code, code is ErrorCode.NONE)


def test_an_error_is_answered_at_once_with_the_records_of_others(world: MemoryBroker) -> None:
    world.create("orders")
    world.append("orders")
    asked = start(world, 0, 7, min_bytes=1 << 20, wait_ms=60_000)
    assert asked.is_answered
    found, unknown = results(asked)
    assert found.records
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    errors = world.broker.requests.errors
    assert errors["Fetch", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == 1


def test_checks_of_one_partition_hold_up_the_others_for_two_rounds(
    world: MemoryBroker, jobs: list[Job]
) -> None:
    """Jobs for many partitions may undo each other, and the fetch would never be answered."""
    ready, unready = results(start(world, 0, 1))
    assert ready.records
    assert (unready.records, unready.error_code) == (b"", ErrorCode.NONE)
    assert [(job.runs, job.is_abandoned) for job in jobs[1:]] == [
        (1, False),
        (1, False),
        (0, True),
    ]


def test_a_failed_check_is_the_error_of_its_partition_alone(
    world: MemoryBroker, jobs: list[Job]
) -> None:
    jobs[0].failure = OSError(5, "input/output error")
    ready, failed = results(start(world, 0, 1))
    assert ready.records and not ready.error_code
    assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_negative_limit_is_an_error_of_the_first_partition_alone(world: MemoryBroker) -> None:
    world.create("orders", 2)
    for index in (0, 1):
        world.append("orders", index)
    first, second = results(start(world, 0, 1, max_bytes=-7))
    assert (first.error_code, first.high_watermark) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert second.records


class LargeSession:
    """A consumer or a follower of many partitions, without records."""

    def __init__(self, world: MemoryBroker, partitions: int, *, max_wait_ms: int = 0) -> None:
        self.world = world
        world.create(f"many-{partitions}", partitions)
        entries = [FetchPartition(partition=n, partition_max_bytes=1000) for n in range(partitions)]
        topic = FetchTopic(topic=f"many-{partitions}", partitions=entries)
        self._next = FetchRequest(topics=[topic], min_bytes=1, session_epoch=0)
        self._partitions = partitions
        response = self.fetch()
        assert len(response.responses[0].partitions) == partitions
        self._next = FetchRequest(
            session_id=response.session_id,
            session_epoch=0,
            min_bytes=1,
            max_wait_ms=max_wait_ms,
        )

    def start(self) -> Asked[FetchResponse]:
        self._next.session_epoch += 1 if self._next.session_id else 0
        return self.world.start(fetch, self._next, 12)

    def fetch(self) -> FetchResponse:
        return self.start().response()

    def found(self, response: FetchResponse) -> dict[int, int]:
        """Return the sizes of the records by partition."""
        parts = [part for topic in response.responses for part in topic.partitions]
        return {part.partition_index: len(part.records) for part in parts}

    def append(self, index: int) -> None:
        self.world.append(f"many-{self._partitions}", index)


def test_a_large_session_costs_nothing_for_idle_partitions(world: MemoryBroker) -> None:
    costs = []
    for partitions in (40, 400):
        session = LargeSession(world, partitions)
        idle = [work_run(session.fetch)["opcode"] for _ in range(3)]
        session.append(7)
        costs.append((idle[-1], work_run(session.fetch)["opcode"]))
    assert costs[0] == costs[1]


def test_a_large_session_gets_each_record_until_it_asks_behind_it(world: MemoryBroker) -> None:
    session = LargeSession(world, 40)
    assert session.found(session.fetch()) == {}
    session.append(3)
    session.append(5)
    first = session.found(session.fetch())
    assert set(first) == {3, 5}
    assert session.found(session.fetch()) == first, "the client has not advanced"
    topic = FetchTopic(topic="many-40")
    topic.partitions = [FetchPartition(partition=3, fetch_offset=1, partition_max_bytes=1000)]
    session._next.topics = [topic]
    assert set(session.found(session.fetch())) == {5}
    session._next.topics = []
    assert set(session.found(session.fetch())) == {5}


def test_a_wait_of_a_large_session_ends_with_the_first_record(world: MemoryBroker) -> None:
    session = LargeSession(world, 40, max_wait_ms=10_000)
    asked = session.start()
    world.pass_time(1.0)
    waits = [asked.is_answered]
    session.append(30)
    world.pass_time(0.01)
    assert [*waits, asked.is_answered] == [False, True]
    assert set(session.found(asked.response())) == {30}
    late = session.start()
    world.pass_time(0.01)
    assert late.is_answered, "the client has not advanced"


def test_a_large_session_learns_the_end_of_its_topic(world: MemoryBroker) -> None:
    session = LargeSession(world, 40, max_wait_ms=10_000)
    asked = session.start()
    world.delete("many-40")
    world.pass_time(0.01)
    parts = asked.response().responses[0].partitions
    assert {part.error_code for part in parts} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


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
