"""Exact reads of ranges of one partition."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.consumer.fetch import DamagedHeader
from lakelog.client.consumer.reader import PartitionReader, first_times
from lakelog.client.errors import (
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    UnreadableLogError,
)
from lakelog.protocol.fetch import (
    DivergingEpoch,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from lakelog.records.builder import BatchBuilder
from scripted_broker import ScriptedBroker, records_of

END = 12


def batch(base: int) -> bytes:
    builder = BatchBuilder()
    for number in range(3):
        builder.append(base + number, None, b"v")
    return bytes(builder.build(base_offset=base, leader_epoch=2))


def log_of(request: FetchRequest) -> FetchResponse:
    """Return two batches of three records from the requested offset on; the log ends at `END`."""
    base = request.topics[0].partitions[0].fetch_offset // 3 * 3
    found = b"".join(batch(at) for at in (base, base + 3) if at < END)
    return records_of(request, found, END)


@pytest.fixture
def reader(broker: ScriptedBroker) -> Iterator[PartitionReader]:
    broker.on(FetchRequest, log_of)
    with PartitionReader(broker.address, timeout_s=10.0, max_wait_ms=1) as reader:
        yield reader


def bases(reader: PartitionReader, start: int, end: int | None = None) -> list[int]:
    return [header.base_offset for header, _ in reader.read("orders", 0, start, end)]


def test_whole_batches_of_the_range_are_read(reader: PartitionReader) -> None:
    assert bases(reader, 4, 9) == [3, 6]
    assert bases(reader, 0, 10) == [0, 3, 6, 9]
    assert bases(reader, 5, 5) == []


def test_without_an_end_the_read_stops_at_the_readable_end(reader: PartitionReader) -> None:
    assert bases(reader, 6) == [6, 9]
    assert bases(reader, END) == []


def test_a_lost_connection_loses_no_batch_and_repeats_none(
    broker: ScriptedBroker, reader: PartitionReader
) -> None:
    broker.on(FetchRequest, log_of, None, log_of)
    assert bases(reader, 0, END) == [0, 3, 6, 9]


def test_a_connection_that_was_closed_between_two_reads_is_replaced_without_a_retry(
    reader: PartitionReader, caplog: pytest.LogCaptureFixture
) -> None:
    assert bases(reader, 0, 6) == [0, 3]
    ((idle,),) = reader._idle.values()
    idle._sock.shutdown(socket.SHUT_RDWR)
    with caplog.at_level(logging.INFO, "lakelog.client.errors"):
        assert bases(reader, 6, END) == [6, 9]
    assert "Retrying" not in caplog.text


def test_a_damaged_response_is_requested_again(
    broker: ScriptedBroker, reader: PartitionReader
) -> None:
    def damaged(request: FetchRequest) -> FetchResponse:
        return records_of(request, batch(0)[:-1] + b"?", END)

    broker.on(FetchRequest, damaged, log_of)
    assert bases(reader, 0, END) == [0, 3, 6, 9]


def test_a_reader_can_keep_a_batch_that_is_damaged_twice(broker: ScriptedBroker) -> None:
    asked: list[int] = []

    def damaged(request: FetchRequest) -> FetchResponse:
        at = request.topics[0].partitions[0].fetch_offset
        asked.append(at)
        return records_of(request, batch(at)[:-1] + b"?" if at == 3 else batch(at), END)

    broker.on(FetchRequest, damaged)
    with PartitionReader(broker.address, max_wait_ms=1, keep_damaged=True) as reader:
        found = list(reader.read("orders", 0, 0, END))
    assert [isinstance(header, DamagedHeader) for header, _ in found] == [False, True, False, False]
    assert bytes(found[1][1]).endswith(b"?")
    assert asked == [0, 3, 3, 6, 9], "it asks once more"


def test_offsets_that_the_broker_refuses_are_a_damaged_batch_without_bytes(
    broker: ScriptedBroker,
) -> None:
    asked: list[int] = []

    def refusing(request: FetchRequest) -> FetchResponse:
        at = request.topics[0].partitions[0].fetch_offset
        asked.append(at)
        if 3 <= at < 6:
            return records_of(request, b"", -1, error=ErrorCode.CORRUPT_MESSAGE)
        return records_of(request, batch(at), END)

    broker.on(FetchRequest, refusing)
    with PartitionReader(broker.address, max_wait_ms=1, keep_damaged=True) as reader:
        found = list(reader.read("orders", 0, 0, END))
        rest = list(reader.read("orders", 0, 4, 5))
    assert [(header.base_offset, header.last_offset, len(data) > 0) for header, data in found] == [
        (0, 2, True),
        (3, 5, False),
        (6, 8, True),
        (9, 11, True),
    ]
    assert [(header.base_offset, header.last_offset) for header, _ in rest] == [(4, 4)]
    assert asked == [0, 3, 3, 4, 5, 6, 6, 9, 4, 4]


def test_a_damaged_batch_without_certain_limits_ends_the_read(broker: ScriptedBroker) -> None:
    def damaged(request: FetchRequest) -> FetchResponse:
        changed = bytearray(batch(0))
        changed[26] ^= 4  # the last offset
        return records_of(request, bytes(changed), END)

    broker.on(FetchRequest, damaged)
    with (
        PartitionReader(broker.address, max_wait_ms=1, keep_damaged=True) as reader,
        pytest.raises(UnreadableLogError, match=r"orders-0 from offset 0: .*not known where"),
    ):
        list(reader.read("orders", 0, 0, END))


def test_an_offset_outside_of_the_log_is_reported_with_its_bounds(
    broker: ScriptedBroker, reader: PartitionReader
) -> None:
    broker.on(FetchRequest, lambda request: records_of(request, b"", -1, error=1))
    bounds = [
        ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name="orders",
                    partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=offset)],
                )
            ]
        )
        for offset in (5, END)
    ]
    broker.on(ListOffsetsRequest, *bounds)
    with pytest.raises(OffsetOutOfRangeError, match=r"has offsets 5 to 12 \(exclusive\), not 2"):
        bases(reader, 2)


def test_a_log_that_was_cut_below_the_position_is_an_error(
    broker: ScriptedBroker, reader: PartitionReader
) -> None:
    """The next records at these offsets are others."""

    def diverged(request: FetchRequest) -> FetchResponse:
        assert request.topics[0].partitions[0].last_fetched_epoch == 2
        response = records_of(request, b"", END)
        response.responses[0].partitions[0].diverging_epoch = DivergingEpoch(epoch=1, end_offset=4)
        return response

    broker.on(FetchRequest, log_of, diverged)
    with pytest.raises(LogTruncatedError) as error:
        bases(reader, 0, END)
    assert (error.value.offset, error.value.diverged_at) == (6, 4)


def test_a_topic_with_another_id_is_not_read(reader: PartitionReader) -> None:
    with pytest.raises(TopicRecreatedError):
        list(reader.read("orders", 0, 0, 3, topic_id=b"another-topic-id"))


KEY = ("orders", 0)


def times_batch(base: int = 0, *, control: bool = False) -> bytes:
    builder = BatchBuilder()
    for number in range(3):
        builder.append(1_000 + base + number, b"\0\0\0\1", b"\0" * 6)
    return bytes(builder.build(base_offset=base, is_control=control))


@pytest.mark.parametrize(
    ("records", "offset", "expected"),
    [
        (times_batch(), 0, {KEY: 1_000}),
        (times_batch(), 2, {KEY: 1_002}),
        (times_batch(7), 3, {KEY: 1_007}),  # compaction removed the records before
        (times_batch(control=True), 0, {}),
        (b"", 0, {}),
    ],
)
def test_the_time_is_that_of_the_first_record_from_the_offset_on(
    broker: ScriptedBroker,
    cluster: Cluster,
    records: bytes,
    offset: int,
    expected: dict[tuple[str, int], int],
) -> None:
    broker.on(FetchRequest, lambda request: records_of(request, records, 10))
    assert first_times(cluster, {KEY: offset}) == expected


def test_a_partition_that_cannot_be_read_is_left_out(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    damaged = bytearray(times_batch())
    damaged[-1] ^= 1

    def answer(request: FetchRequest) -> FetchResponse:
        partition = request.topics[0].partitions[0].partition
        return records_of(request, bytes(damaged) if partition else times_batch(), 10)

    broker.on(FetchRequest, answer)
    assert first_times(cluster, {KEY: 0, ("orders", 1): 0}) == {KEY: 1_000}


def test_one_batch_is_fetched_without_a_wait(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.on(FetchRequest, lambda request: records_of(request, times_batch(), 10))
    first_times(cluster, {KEY: 0})
    (request,) = broker.asked(FetchRequest)
    assert (request.max_wait_ms, request.max_bytes) == (0, 1)
