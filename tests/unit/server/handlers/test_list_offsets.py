from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.fetch import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from lakelog.server.handlers.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    handle,
)
from memory_broker import MemoryBroker
from replica_pair import EPOCH, FOLLOWER, LEADER, ReplicaPair
from storage_kit import NOW, append_in_transaction, make_batch

E = ErrorCode


def ask(
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
        world.ask(handle, request, version).topics[0].partitions[-1]
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
    result = ask(world, timestamp)
    assert (result.error_code, result.offset, result.partition_index) == (E.NONE, offset, 0)


def test_a_time_is_the_first_record_at_it_or_after(world: MemoryBroker, start: int) -> None:
    result = ask(world, start + 1500)
    assert (result.error_code, result.offset) == (E.NONE, 2)
    assert result.timestamp > start + 1500
    assert result.leader_epoch == world.partition("orders").leader_epoch
    late = ask(world, start + 60_000)
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
    assert ask(world, timestamp, version=min(since - 1, 11)).error_code == E.UNSUPPORTED_VERSION
    if since <= 11:
        assert ask(world, timestamp, version=since).error_code == E.NONE


def test_a_partition_that_a_request_repeats_is_an_error(world: MemoryBroker) -> None:
    world.create("orders")
    assert ask(world, times=2).error_code == E.INVALID_REQUEST


@pytest.mark.parametrize(("topic", "index"), [("gone", 0), ("orders", 9), ("orders", -1)])
def test_an_unknown_partition_is_an_error(world: MemoryBroker, topic: str, index: int) -> None:
    world.create("orders")
    result = ask(world, topic=topic, index=index)
    assert (result.error_code, result.offset) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_an_old_or_future_leader_epoch_is_fenced(world: MemoryBroker) -> None:
    world.create("orders")
    epoch = world.partition("orders").leader_epoch
    assert ask(world, epoch=epoch).error_code == E.NONE
    assert ask(world, epoch=epoch + 1).error_code == E.UNKNOWN_LEADER_EPOCH
    if epoch:
        assert ask(world, epoch=epoch - 1).error_code == E.FENCED_LEADER_EPOCH


def test_read_committed_ends_before_an_open_transaction(world: MemoryBroker) -> None:
    world.create("orders")
    world.append("orders")
    world.pass_time(1)
    now = world.clock.wall_ms()
    append_in_transaction(world.partition("orders").log, (7, 0, 0), now_ms=now)
    world.partition("orders").note_flush()
    assert ask(world, committed=True).offset == 1
    assert ask(world).offset == 2
    assert ask(world, now).offset == 1
    assert ask(world, now, committed=True).offset == -1


@pytest.mark.parametrize(("version", "code"), [(11, 78), (4, 5)])
@pytest.mark.parametrize("timestamp", [LATEST, 0])
def test_a_new_leader_returns_no_end_below_the_start_of_its_epoch(
    world: MemoryBroker, timestamp: int, version: int, code: int
) -> None:
    pair = ReplicaPair(world)
    pair.leader.append(make_batch(2), NOW)
    pair.change((LEADER, FOLLOWER), epoch_rises=True)
    asked = ask(world, timestamp, topic="t", version=version)
    assert (asked.error_code, asked.offset) == (code, -1), "earlier epochs may have committed both"
    assert ask(world, EARLIEST, topic="t").offset == 0
    pair.leader.note_fetch(FOLLOWER, EPOCH, 2, 0)
    found = ask(world, timestamp, topic="t", version=version)
    assert (found.error_code, found.offset) == (E.NONE, 2 if timestamp == LATEST else 0)


def ask_replica(world: MemoryBroker, topic: str = "t") -> ListOffsetsPartitionResponse:
    entry = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-2, topics=[ListOffsetsTopic(name=topic, partitions=[entry])]
    )
    response: ListOffsetsPartitionResponse = world.ask(handle, request, 11).topics[0].partitions[0]
    return response


def test_any_replica_returns_the_end_of_its_own_log(world: MemoryBroker) -> None:
    pair = ReplicaPair(world)
    assert (ask_replica(world).offset, ask_replica(world).leader_epoch) == (0, -1)
    world.append("t", count=3)
    assert ask(world, topic="t").offset == 0, "nothing is committed"
    epoch = pair.leader.leader_epoch
    pair.change((LEADER, FOLLOWER), leader=FOLLOWER, epoch_rises=True)
    assert ask(world, topic="t").error_code == E.NOT_LEADER_OR_FOLLOWER
    assert (ask_replica(world).offset, ask_replica(world).leader_epoch) == (3, epoch)


def test_a_replica_without_a_usable_log_returns_the_reason(world: MemoryBroker) -> None:
    world.create("t")
    world.partition("t").take_offline("test")
    assert ask_replica(world).error_code == E.KAFKA_STORAGE_ERROR
    assert ask_replica(world, "missing").error_code == E.UNKNOWN_TOPIC_OR_PARTITION
