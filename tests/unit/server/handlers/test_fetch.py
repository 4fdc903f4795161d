from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from lakelog.records.batch import iter_batches
from lakelog.server.handlers.fetch import handle
from memory_broker import MemoryBroker
from storage_kit import append_in_transaction

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
    response: FetchResponse = world.ask(handle, wanted, version)
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
    waiting = world.start(handle, request(0, wait_ms=500), 12)
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
    waiting = world.start(handle, request(0, topic_id=topic_id, wait_ms=60_000), 13)
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
    opened: FetchResponse = world.ask(handle, request(1, 0, session=(0, 0)), 12)
    assert opened.session_id and not opened.error_code
    world.append("orders", 1)
    following = request(session=(opened.session_id, 1))
    following.topics = []
    response: FetchResponse = world.ask(handle, following, 12)
    (topic,) = response.responses
    assert [each.partition_index for each in topic.partitions] == [1]


def test_an_error_of_the_session_is_counted_and_ends_the_request(world: MemoryBroker) -> None:
    world.create("orders")
    opened: FetchResponse = world.ask(handle, request(0, session=(0, 0)), 12)
    for session, code in [
        ((opened.session_id + 1, 1), E.FETCH_SESSION_ID_NOT_FOUND),
        ((opened.session_id, 7), E.INVALID_FETCH_SESSION_EPOCH),
    ]:
        response: FetchResponse = world.ask(handle, request(0, session=session), 12)
        assert (response.error_code, response.responses) == (code, [])
        assert world.broker.requests.errors["Fetch", code] == 1
