"""The limits of a Fetch mean the same to lakelog and to Apache Kafka 4.3.1, absurd ones too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.pair import Pair
from lakelog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from lakelog.records.batch import iter_batches
from wire_client import FETCH_VERSION, WireClient, batch_of, create_topic, produce

pytestmark = pytest.mark.java

TOPIC = "limits"
EMPTY = 2
"""A partition without records; 0 and 1 have `COUNT` batches of one size each."""
COUNT = 5
ONE = len(batch_of(bytes(100)))
PLENTY = 1 << 20
PARTITION_LIMITS = (-5, -1, 0, 1, ONE - 1, ONE, ONE + 1, 2 * ONE, PLENTY)
LIMITS = (-7, -1, 0, 1, ONE - 1, ONE, 3 * ONE, PLENTY)
OFFSETS = {
    "from the start": {0: 0, 1: 0},
    "from the middle": {0: 2, 1: 2},
    "an empty partition first": {EMPTY: 0, 0: 0, 1: 0},
    "at the end": {0: COUNT, 1: 0},
    "beyond the end": {0: 0, 1: 99},
}


@pytest.fixture(scope="module")
def clients(pair: Pair) -> Iterator[list[WireClient]]:
    with WireClient(pair.ours) as ours, WireClient(pair.kafka) as kafka:
        for client in (ours, kafka):
            _prepare(client)
        yield [ours, kafka]


def _prepare(client: WireClient) -> None:
    create_topic(client, TOPIC, 3)
    for partition in (0, 1):
        for number in range(COUNT):
            batch = batch_of(bytes([number]) * 100)
            assert produce(client, TOPIC, batch, partition=partition).error_code == 0


def _answer(client: WireClient, offsets: dict[int, int], partition_limit: int, limit: int) -> Any:
    """By partition: the error, the high watermark and how many whole batches there are."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_limit)
        for index, offset in offsets.items()
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=limit,
        topics=[FetchTopic(topic=TOPIC, partitions=partitions)],
    )
    response = client.call(request, FETCH_VERSION)
    return response.error_code, [
        (
            data.partition_index,
            data.error_code,
            data.high_watermark,
            sum(1 for _ in iter_batches(_whole(bytes(data.records or b"")))),
        )
        for topic in response.responses
        for data in topic.partitions
    ]


def _whole(records: bytes) -> bytes:
    """Without what Kafka begins of a batch that does not fit."""
    return records[: len(records) // ONE * ONE]


@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=OFFSETS)
def test_limits_mean_the_same(clients: list[WireClient], offsets: dict[int, int]) -> None:
    for partition_limit in PARTITION_LIMITS:
        for limit in LIMITS:
            ours, kafkas = (_answer(client, offsets, partition_limit, limit) for client in clients)
            assert ours == kafkas, f"partition_max_bytes={partition_limit}, max_bytes={limit}"
