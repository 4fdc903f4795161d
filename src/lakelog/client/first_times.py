"""Timestamps of the records at given offsets."""

from __future__ import annotations

from collections.abc import Mapping

from lakelog.base.errors import KafkaError
from lakelog.client.cluster import Cluster
from lakelog.client.consumer.fetch import (
    Fetched,
    FetchTarget,
    fetch_request,
    newest_version,
    read_response,
)
from lakelog.client.offsets import TopicPartition
from lakelog.protocol.fetch import FetchResponse
from lakelog.records.batch import CorruptRecord
from lakelog.records.compression import MAX_DECOMPRESSED_BYTES
from lakelog.records.record import decode_records


def first_times(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the timestamp (ms since the epoch) of the first record at or after each offset.

    Partitions without such a record, and unreadable ones, are left out. The call fetches one batch
    per partition, one partition after the other. Raises nothing for a partition that cannot be
    read.
    """
    times: dict[TopicPartition, int] = {}
    for key, offset in offsets.items():
        timestamp = _first_time(cluster, key, offset)
        if timestamp is not None:
            times[key] = timestamp
    return times


def _first_time(cluster: Cluster, key: TopicPartition, offset: int) -> int | None:
    topic, partition = key

    def work() -> tuple[FetchResponse, FetchTarget]:
        target = FetchTarget(cluster.topic(topic), partition, offset, max_bytes=1)
        request = fetch_request(
            [target], max_wait_ms=0, min_bytes=0, max_bytes=1, read_committed=False
        )
        node = cluster.leader(topic, partition).node_id
        newest = newest_version([target])
        return cluster.ask(node, request, FetchResponse, newest=newest), target

    try:
        response, target = cluster.retrying(work)
        # Not within `work`: CORRUPT_MESSAGE is retriable, and a damaged batch stays damaged.
        (fetched,) = read_response(response, [target])
        return _first_in(fetched, offset)
    except (KafkaError, CorruptRecord):
        return None


def _first_in(fetched: Fetched, offset: int) -> int | None:
    for header, batch in fetched.batches:
        for record in decode_records(batch, header, MAX_DECOMPRESSED_BYTES):
            if record.offset >= offset and not header.is_control:
                return record.timestamp
    return None
