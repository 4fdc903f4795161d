from __future__ import annotations

import pytest

from lakelog.client.cluster import Cluster
from lakelog.client.first_times import first_times
from lakelog.protocol.fetch import FetchRequest, FetchResponse
from lakelog.records.builder import BatchBuilder
from scripted_broker import ScriptedBroker, records_of

KEY = ("orders", 0)


def batch(base: int = 0, *, control: bool = False) -> bytes:
    builder = BatchBuilder()
    for number in range(3):
        builder.append(1_000 + base + number, b"\0\0\0\1", b"\0" * 6)
    return bytes(builder.build(base_offset=base, is_control=control))


@pytest.mark.parametrize(
    ("records", "offset", "expected"),
    [
        (batch(), 0, {KEY: 1_000}),
        (batch(), 2, {KEY: 1_002}),
        (batch(7), 3, {KEY: 1_007}),  # compaction removed the records before
        (batch(control=True), 0, {}),
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
    damaged = bytearray(batch())
    damaged[-1] ^= 1

    def answer(request: FetchRequest) -> FetchResponse:
        partition = request.topics[0].partitions[0].partition
        return records_of(request, bytes(damaged) if partition else batch(), 10)

    broker.on(FetchRequest, answer)
    assert first_times(cluster, {KEY: 0, ("orders", 1): 0}) == {KEY: 1_000}


def test_one_batch_is_fetched_without_a_wait(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.on(FetchRequest, lambda request: records_of(request, batch(), 10))
    first_times(cluster, {KEY: 0})
    (request,) = broker.asked(FetchRequest)
    assert (request.max_wait_ms, request.max_bytes) == (0, 1)
