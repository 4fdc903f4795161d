from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    PartitionData,
)
from lakelog.records.batch import iter_batches
from lakelog.server.handlers.fetch import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
)
from memory_broker import MemoryBroker
from replica_pair import EPOCH, FOLLOWER, LEADER, ReplicaPair
from storage_kit import NOW, append_in_transaction, make_batch

E = ErrorCode


def request(
    *offsets: int,
    topic: str = "orders",
    topic_id: bytes = bytes(16),
    wait_ms: int = 0,
    committed: bool = False,
    leader_epoch: int = -1,
    last_epoch: int = -1,
    partition_max_bytes: int = 1 << 20,
    max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    """Ask partition 0 for the first offset, and so on."""
    entries = [
        FetchPartition(
            partition=index,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=partition_max_bytes,
        )
        for index, offset in enumerate(offsets)
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=entries)],
    )


def ask(world: MemoryBroker, wanted: FetchRequest, version: int = 12) -> list[PartitionData]:
    response: FetchResponse = world.ask(fetch, wanted, version)
    assert not response.error_code
    return [each for topic in response.responses for each in topic.partitions]


def offsets(found: PartitionData) -> list[int]:
    data = bytes(found.records or b"")
    return [
        offset
        for header, _ in iter_batches(data)
        for offset in range(header.base_offset, header.last_offset + 1)
    ]


def test_batches_are_returned_whole(world: MemoryBroker) -> None:
    world.create("orders", 2)
    world.append("orders", count=3)
    world.append("orders", count=3)
    first, empty = ask(world, request(4, 0))
    assert (offsets(first), first.high_watermark) == ([3, 4, 5], 6)
    assert (first.log_start_offset, first.last_stable_offset) == (0, 6)
    assert (offsets(empty), empty.error_code) == ([], E.NONE)


def test_one_batch_is_returned_however_large(world: MemoryBroker) -> None:
    """KIP-74: a consumer can always proceed."""
    world.create("orders", 2)
    for index in range(2):
        world.append("orders", index, count=100)
    first, second = ask(world, request(0, 0, partition_max_bytes=10, max_bytes=10))
    assert (len(offsets(first)), offsets(second)) == (100, [])


@pytest.mark.parametrize("offset", [-1, 4])
def test_an_offset_outside_of_the_log_is_an_error(world: MemoryBroker, offset: int) -> None:
    world.create("orders")
    world.append("orders", count=3)
    (found,) = ask(world, request(offset))
    assert (found.error_code, offsets(found)) == (E.OFFSET_OUT_OF_RANGE, [])


def test_an_unknown_partition_does_not_fail_the_others(world: MemoryBroker) -> None:
    topic_id = world.create("orders")
    world.append("orders")
    known, unknown = ask(world, request(0, 0))
    assert (offsets(known), unknown.error_code) == ([0], E.UNKNOWN_TOPIC_OR_PARTITION)
    (found,) = ask(world, request(0, topic_id=topic_id), 13)
    assert offsets(found) == [0]
    (gone,) = ask(world, request(0, topic_id=b"\x11" * 16), 13)
    assert gone.error_code == E.UNKNOWN_TOPIC_ID


def test_a_leader_epoch_of_other_metadata_is_fenced(world: MemoryBroker) -> None:
    world.create("orders")
    world.partition("orders").leader_epoch = 5
    codes = [ask(world, request(0, leader_epoch=epoch))[0].error_code for epoch in (4, 5, 6)]
    assert codes == [E.FENCED_LEADER_EPOCH, E.NONE, E.UNKNOWN_LEADER_EPOCH]


def test_a_reader_of_another_history_gets_the_diverging_offset(world: MemoryBroker) -> None:
    """KIP-595: the log was cut, and grew again under a newer leader."""
    world.create("orders")
    first = world.partition("orders").leader_epoch
    world.append("orders", count=3)
    world.partition("orders").leader_epoch = first + 2
    world.append("orders", count=3)
    (found,) = ask(world, request(5, last_epoch=first))
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (first, 3)
    assert offsets(found) == []


def test_a_fetch_waits_for_records(world: MemoryBroker) -> None:
    world.create("orders")
    waiting = world.start(fetch, request(0, wait_ms=500), 12)
    world.pass_time(0.4)
    assert not waiting.is_answered
    world.append("orders")
    assert offsets(waiting.response().responses[0].partitions[0]) == [0]


def test_a_fetch_without_records_is_answered_in_time(world: MemoryBroker) -> None:
    world.create("orders")
    begun = world.clock.monotonic()
    assert offsets(ask(world, request(0, wait_ms=500))[0]) == []
    assert world.clock.monotonic() - begun == pytest.approx(0.5)


def test_a_deleted_topic_ends_the_wait(world: MemoryBroker) -> None:
    topic_id = world.create("orders")
    waiting = world.start(fetch, request(0, topic_id=topic_id, wait_ms=60_000), 13)
    world.delete("orders")
    (found,) = waiting.response().responses[0].partitions
    assert found.error_code == E.UNKNOWN_TOPIC_ID
    assert world.clock.monotonic() < 60


def test_read_committed_ends_before_an_open_transaction(world: MemoryBroker) -> None:
    world.create("orders")
    world.append("orders")
    now = world.clock.wall_ms()
    append_in_transaction(world.partition("orders").log, (7, 0, 0), now_ms=now)
    world.partition("orders").note_flush()
    (plain,) = ask(world, request(0))
    assert (offsets(plain), plain.last_stable_offset) == ([0, 1], 1)
    (committed,) = ask(world, request(0, committed=True))
    assert offsets(committed) == [0]
    world.partition("orders").append_marker(7, 0, False, 0, now, transaction_version=0)
    (aborted,) = ask(world, request(0, committed=True))
    assert offsets(aborted) == [0, 1, 2]
    assert [
        (each.producer_id, each.first_offset) for each in aborted.aborted_transactions or ()
    ] == [(7, 1)]


def test_a_session_lists_changed_partitions_only(world: MemoryBroker) -> None:
    world.create("orders", 2)
    world.append("orders")
    opened: FetchResponse = world.ask(fetch, request(1, 0, session=(0, 0)), 12)
    assert opened.session_id and not opened.error_code
    world.append("orders", 1)
    following = request(session=(opened.session_id, 1))
    following.topics = []
    response: FetchResponse = world.ask(fetch, following, 12)
    (topic,) = response.responses
    assert [each.partition_index for each in topic.partitions] == [1]


def test_an_error_of_the_session_is_counted_and_ends_the_request(world: MemoryBroker) -> None:
    world.create("orders")
    opened: FetchResponse = world.ask(fetch, request(0, session=(0, 0)), 12)
    for session, code in [
        ((opened.session_id + 1, 1), E.FETCH_SESSION_ID_NOT_FOUND),
        ((opened.session_id, 7), E.INVALID_FETCH_SESSION_EPOCH),
    ]:
        response: FetchResponse = world.ask(fetch, request(0, session=session), 12)
        assert (response.error_code, response.responses) == (code, [])
        assert world.broker.requests.errors["Fetch", code] == 1


def ask_offsets(
    world: MemoryBroker,
    timestamp: int = LATEST,
    *,
    topic: str = "orders",
    index: int = 0,
    epoch: int = -1,
    version: int = 11,
    committed: bool = False,
    times: int = 1,
) -> ListOffsetsPartitionResponse:
    entry = ListOffsetsPartition(
        partition_index=index, current_leader_epoch=epoch, timestamp=timestamp
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name=topic, partitions=[entry] * times)],
    )
    response: ListOffsetsPartitionResponse = (
        world.ask(list_offsets, request, version).topics[0].partitions[-1]
    )
    return response


@pytest.fixture
def start(world: MemoryBroker) -> int:
    """Write three records a second apart, delete the first; return the time of the first (ms)."""
    world.create("orders", 2)
    begin = world.clock.wall_ms()
    for _ in range(3):
        world.append("orders")
        world.pass_time(1)
    world.partition("orders").delete_records(1)
    return begin


@pytest.mark.usefixtures("start")
@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(LATEST, 3), (EARLIEST, 1), (EARLIEST_LOCAL, 1), (LATEST_TIERED, -1), (MAX_TIMESTAMP, 2)],
)
def test_special_times_are_positions(world: MemoryBroker, timestamp: int, offset: int) -> None:
    result = ask_offsets(world, timestamp)
    assert (result.error_code, result.offset, result.partition_index) == (E.NONE, offset, 0)


def test_a_time_is_the_first_record_at_it_or_after(world: MemoryBroker, start: int) -> None:
    result = ask_offsets(world, start + 1500)
    assert (result.error_code, result.offset) == (E.NONE, 2)
    assert result.timestamp > start + 1500
    assert result.leader_epoch == world.partition("orders").leader_epoch
    late = ask_offsets(world, start + 60_000)
    assert (late.error_code, late.offset, late.timestamp) == (E.NONE, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "since"),
    [
        (MAX_TIMESTAMP, 7),
        (EARLIEST_LOCAL, 8),
        (LATEST_TIERED, 9),
        (EARLIEST_PENDING_UPLOAD, 11),
        (EARLIEST_PENDING_UPLOAD - 1, 99),
    ],
)
def test_special_times_came_with_a_version(world: MemoryBroker, timestamp: int, since: int) -> None:
    world.create("orders")
    assert (
        ask_offsets(world, timestamp, version=min(since - 1, 11)).error_code
        == E.UNSUPPORTED_VERSION
    )
    if since <= 11:
        assert ask_offsets(world, timestamp, version=since).error_code == E.NONE


def test_a_partition_that_a_request_repeats_is_an_error(world: MemoryBroker) -> None:
    world.create("orders")
    assert ask_offsets(world, times=2).error_code == E.INVALID_REQUEST


@pytest.mark.parametrize(("topic", "index"), [("gone", 0), ("orders", 9), ("orders", -1)])
def test_an_unknown_partition_is_an_error(world: MemoryBroker, topic: str, index: int) -> None:
    world.create("orders")
    result = ask_offsets(world, topic=topic, index=index)
    assert (result.error_code, result.offset) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_an_old_or_future_leader_epoch_is_fenced(world: MemoryBroker) -> None:
    world.create("orders")
    epoch = world.partition("orders").leader_epoch
    assert ask_offsets(world, epoch=epoch).error_code == E.NONE
    assert ask_offsets(world, epoch=epoch + 1).error_code == E.UNKNOWN_LEADER_EPOCH
    if epoch:
        assert ask_offsets(world, epoch=epoch - 1).error_code == E.FENCED_LEADER_EPOCH


def test_the_committed_end_is_before_an_open_transaction(world: MemoryBroker) -> None:
    world.create("orders")
    world.append("orders")
    world.pass_time(1)
    now = world.clock.wall_ms()
    append_in_transaction(world.partition("orders").log, (7, 0, 0), now_ms=now)
    world.partition("orders").note_flush()
    assert ask_offsets(world, committed=True).offset == 1
    assert ask_offsets(world).offset == 2
    assert ask_offsets(world, now).offset == 1
    assert ask_offsets(world, now, committed=True).offset == -1


@pytest.mark.parametrize(("version", "code"), [(11, 78), (4, 5)])
@pytest.mark.parametrize("timestamp", [LATEST, 0])
def test_a_new_leader_returns_no_end_below_the_start_of_its_epoch(
    world: MemoryBroker, timestamp: int, version: int, code: int
) -> None:
    pair = ReplicaPair(world)
    pair.leader.append(make_batch(2), NOW)
    pair.change((LEADER, FOLLOWER), epoch_rises=True)
    asked = ask_offsets(world, timestamp, topic="t", version=version)
    assert (asked.error_code, asked.offset) == (code, -1), "earlier epochs may have committed both"
    assert ask_offsets(world, EARLIEST, topic="t").offset == 0
    pair.leader.note_fetch(FOLLOWER, EPOCH, 2, 0)
    found = ask_offsets(world, timestamp, topic="t", version=version)
    assert (found.error_code, found.offset) == (E.NONE, 2 if timestamp == LATEST else 0)


def ask_replica(world: MemoryBroker, topic: str = "t") -> ListOffsetsPartitionResponse:
    entry = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-2, topics=[ListOffsetsTopic(name=topic, partitions=[entry])]
    )
    response: ListOffsetsPartitionResponse = (
        world.ask(list_offsets, request, 11).topics[0].partitions[0]
    )
    return response


def test_any_replica_returns_the_end_of_its_own_log(world: MemoryBroker) -> None:
    pair = ReplicaPair(world)
    assert (ask_replica(world).offset, ask_replica(world).leader_epoch) == (0, -1)
    world.append("t", count=3)
    assert ask_offsets(world, topic="t").offset == 0, "nothing is committed"
    epoch = pair.leader.leader_epoch
    pair.change((LEADER, FOLLOWER), leader=FOLLOWER, epoch_rises=True)
    assert ask_offsets(world, topic="t").error_code == E.NOT_LEADER_OR_FOLLOWER
    assert (ask_replica(world).offset, ask_replica(world).leader_epoch) == (3, epoch)


def test_a_replica_without_a_usable_log_returns_the_reason(world: MemoryBroker) -> None:
    world.create("t")
    world.partition("t").take_offline("test")
    assert ask_replica(world).error_code == E.KAFKA_STORAGE_ERROR
    assert ask_replica(world, "missing").error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def ask_epoch_end(
    world: MemoryBroker,
    leader_epoch: int,
    *,
    current: int = -1,
    topic: str = "orders",
    index: int = 0,
    version: int = 4,
) -> EpochEndOffset:
    entry = OffsetForLeaderPartition(
        partition=index, current_leader_epoch=current, leader_epoch=leader_epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1 if version >= 3 else -2,
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[entry])],
    )
    return world.ask(offset_for_leader_epoch, request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 4])
def test_an_epoch_ends_where_the_next_begins(world: MemoryBroker, version: int) -> None:
    world.create("orders")
    partition = world.partition("orders")
    world.append("orders", count=3)
    first = partition.leader_epoch
    partition.leader_epoch += 2
    world.append("orders", count=2)
    before = ask_epoch_end(world, first, version=version)
    assert (before.leader_epoch, before.end_offset) == (first, 3)
    between = ask_epoch_end(world, first + 1, version=version)
    assert (between.leader_epoch, between.end_offset) == (first, 3)
    latest = ask_epoch_end(world, first + 2, version=version)
    assert (latest.leader_epoch, latest.end_offset) == (first + 2, 5)


def test_an_unknown_epoch_has_no_end(world: MemoryBroker) -> None:
    world.create("orders")
    world.append("orders")
    found = ask_epoch_end(world, world.partition("orders").leader_epoch + 7)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (E.NONE, -1, -1)


@pytest.mark.parametrize(("topic", "index"), [("gone", 0), ("orders", 9)])
def test_an_unknown_partition_has_no_epochs(world: MemoryBroker, topic: str, index: int) -> None:
    world.create("orders")
    found = ask_epoch_end(world, 0, topic=topic, index=index)
    assert (found.error_code, found.partition) == (E.UNKNOWN_TOPIC_OR_PARTITION, index)


def test_metadata_of_another_leader_is_fenced(world: MemoryBroker) -> None:
    world.create("orders")
    partition = world.partition("orders")
    partition.leader_epoch = 5
    assert ask_epoch_end(world, 0, current=4).error_code == E.FENCED_LEADER_EPOCH
    assert ask_epoch_end(world, 0, current=6).error_code == E.UNKNOWN_LEADER_EPOCH
    assert ask_epoch_end(world, 0, current=5).error_code == E.NONE
