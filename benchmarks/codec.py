"""How long encoding and decoding take, best of several rounds, and what compiling costs.

Run: python benchmarks/codec.py
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from time import perf_counter
from typing import Any

from lakelog.protocol import fetch, metadata, produce
from lakelog.wire.codec import decode, encode, encode_parts

ROUNDS = 7
TOPIC_ID = bytes(range(16))


def produce_request(size: int) -> produce.ProduceRequest:
    partition = produce.PartitionProduceData(index=1, records=bytes(size))
    topic = produce.TopicProduceData(name="topic", topic_id=TOPIC_ID, partition_data=[partition])
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response() -> produce.ProduceResponse:
    partition = produce.PartitionProduceResponse(index=1, base_offset=77, log_start_offset=0)
    topic = produce.TopicProduceResponse(
        name="topic", topic_id=TOPIC_ID, partition_responses=[partition]
    )
    return produce.ProduceResponse(responses=[topic])


def fetch_request() -> fetch.FetchRequest:
    partition = fetch.FetchPartition(partition=1, fetch_offset=77, partition_max_bytes=1 << 20)
    topic = fetch.FetchTopic(topic="topic", topic_id=TOPIC_ID, partitions=[partition])
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])


def fetch_response(size: int) -> fetch.FetchResponse:
    partition = fetch.PartitionData(partition_index=1, high_watermark=99, records=bytes(size))
    topic = fetch.FetchableTopicResponse(topic="topic", topic_id=TOPIC_ID, partitions=[partition])
    return fetch.FetchResponse(responses=[topic])


def metadata_response(partitions: int) -> metadata.MetadataResponse:
    topic = metadata.MetadataResponseTopic(
        name="topic",
        topic_id=TOPIC_ID,
        partitions=[
            metadata.MetadataResponsePartition(
                partition_index=index, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
            )
            for index in range(partitions)
        ],
    )
    broker = metadata.MetadataResponseBroker(node_id=1, host="broker-1", port=9092)
    return metadata.MetadataResponse(brokers=[broker], cluster_id="cluster", topics=[topic])


CASES: list[tuple[str, Callable[[], Any], int]] = [
    ("ProduceRequest, 1 KB", lambda: produce_request(1000), 13),
    ("ProduceResponse", produce_response, 13),
    ("FetchRequest", fetch_request, 18),
    ("FetchResponse, 64 KB", lambda: fetch_response(65_536), 18),
    ("MetadataResponse, 1000 partitions", lambda: metadata_response(1000), 13),
]


def best_us(work: Callable[[], object]) -> float:
    timer = timeit.Timer(work)
    count, _ = timer.autorange()
    return min(timer.repeat(ROUNDS, count // 4 or 1)) / (count // 4 or 1) * 1e6


def first_ms(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return (perf_counter() - start) * 1e3


def main() -> None:
    columns = ("build", "encode", "to parts", "decode", "first encode", "first dec.")
    print(f"{'microseconds (first: milliseconds)':36}" + "".join(f"{c:>13}" for c in columns))
    for label, build, version in CASES:
        message = build()
        kind = type(message)
        firsts = [first_ms(lambda: encode(message, version))]  # noqa: B023
        data = memoryview(encode(message, version))
        firsts.append(first_ms(lambda: decode(kind, data, version)))  # noqa: B023
        figures = [
            best_us(build),
            best_us(lambda: encode(message, version)),  # noqa: B023
            best_us(lambda: encode_parts(message, version)),  # noqa: B023
            best_us(lambda: decode(kind, data, version)),  # noqa: B023
        ]
        print(f"{label:36}" + "".join(f"{figure:13.2f}" for figure in (*figures, *firsts)))


if __name__ == "__main__":
    main()
