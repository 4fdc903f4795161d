"""What Produce and Fetch cost in steady state, in bytecodes: at most 3 % more than was recorded.

Produce includes its share of the walks over verified batches (`records.verify=sampled`). A figure
is the cost of a single request, or the mean of 20 pipelined requests. A change that is worth its
cost replaces the figures for each version of Python; the failure shows the new ones. In a version
without figures, the calls are compared.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

from counted_work import work_run
from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import FetchPartition
from lakelog.protocol.topics import CreatableTopic, CreateTopicsRequest
from lakelog.wire.framing import encode_request
from lakelog.wire.schema import Message
from socketless_broker import SocketlessBroker
from storage_kit import NOW, make_batch
from wire_client import fetch_request, produce_request

TOLERANCE = 1.03
_WARM_UP = 10
_ROUNDS = 20
SHAPES = {"alone": 1, "of 20": 20}
VERSIONS = (3, 11), (3, 12), (3, 13)
RECORDED = {
    "produce 1 record, alone": (21.0, 1113, 1040, 1011),
    "produce 100 records, alone": (23.0, 1186, 1106, 1072),
    "produce 1 record, of 20": (2.7, 392, 369, 356),
    "produce 100 records, of 20": (4.8, 462, 434, 417),
    "fetch 1 record, alone": (30.0, 983, 920, 890),
    "fetch 100 records, alone": (30.0, 983, 920, 890),
    "fetch 1 record, of 20": (26.7, 926, 876, 833),
    "fetch 100 records, of 20": (26.7, 928, 878, 835),
    "fetch 100 kB, alone": (34.5, 1100, 1030, 996),
}
"""Calls, which are the same in all versions of Python, and the bytecodes of each of `VERSIONS`."""
FEW, MANY = 20, 120
PER_PARTITION = (9, 493, 470, 454)
"""Limits, without tolerance, for each empty partition of a decoded Fetch."""


def frame(message: Message, version: int) -> bytes:
    return b"".join(encode_request(api_for(type(message)), version, 1, "test", message))


async def create(broker: SocketlessBroker, topic: str) -> None:
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    broker.socket.was_sent.clear()
    broker.ask(frame(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 7))
    await broker.socket.was_sent.wait()
    broker.take_answer()


def mean(broker: SocketlessBroker, frames: bytes, together: int) -> Counter[str]:
    """What one of the requests in `frames` costs a new connection once it is known."""

    def work() -> Counter[str]:
        return work_run(lambda: broker.ask(frames * together))

    broker.connect()
    for _ in range(_WARM_UP):
        broker.ask(frames * together)
    sampling = broker.connection.sampling
    sampling.left = 1 << 30
    work()  # Python 3.12 begins to count bytecodes after a first trace
    usual = sum((work() for _ in range(_ROUNDS)), Counter())
    sampling.left = 0
    verified = work()
    apart = sampling.left + together if sampling.left else sys.maxsize  # no Produce requests
    each: Counter[str] = Counter()
    for kind, count in usual.items():
        usual_once = count / _ROUNDS
        each[kind] = usual_once / together + (verified[kind] - usual_once) / apart  # type: ignore[assignment]
    return each


def measure(folder: Path) -> dict[str, Counter[str]]:
    """Bytecodes and calls (`opcode`, `call`) of a request by its name."""
    found = {}

    async def main() -> None:
        broker = SocketlessBroker(folder)
        await broker.start()
        for shape, together in SHAPES.items():
            for records in (1, 100):
                topic = f"{records}-{together}"
                await create(broker, topic)
                batch = bytes(make_batch(records, timestamp=NOW - 5_000))
                name = f"{records} record{'s' * (records > 1)}, {shape}"
                produce = frame(produce_request(topic, batch, acks=1), 9)
                found[f"produce {name}"] = mean(broker, produce, together)
                fetch = frame(fetch_request(topic, 0, partition_max_bytes=1), 12)
                found[f"fetch {name}"] = mean(broker, fetch, together)
        await create(broker, "ranges")
        batch = bytes(make_batch(100, size=1_000, timestamp=NOW - 5_000))
        for _ in range(2):  # the batch behind the range shows that the page cache holds it
            broker.ask(frame(produce_request("ranges", batch, acks=1), 9))
        fetch = frame(fetch_request("ranges", 0, partition_max_bytes=1), 12)
        found["fetch 100 kB, alone"] = mean(broker, fetch, 1)
        await broker.stop()

    asyncio.run(main())
    return found


def per_partition(folder: Path) -> Counter[str]:
    """What each further empty partition of a decoded Fetch costs."""
    found: Counter[str] = Counter()

    def fetch(partitions: int) -> bytes:
        request = fetch_request("many", 0)
        request.topics[0].partitions = [
            FetchPartition(partition=index, partition_max_bytes=1) for index in range(partitions)
        ]
        return frame(request, 12)

    async def main() -> None:
        broker = SocketlessBroker(folder)
        await broker.start()
        await broker.create_topic("many", partitions=MANY)
        few, many = (mean(broker, fetch(partitions), 1) for partitions in (FEW, MANY))
        for kind in few:
            found[kind] = (many[kind] - few[kind]) / (MANY - FEW)  # type: ignore[assignment]
        await broker.stop()

    asyncio.run(main())
    return found


def test_each_partition_of_a_decoded_fetch_costs_as_recorded(device_path: Path) -> None:
    found = per_partition(device_path / "data")
    limits = {"call": PER_PARTITION[0]}
    if sys.version_info[:2] in VERSIONS:
        limits["opcode"] = PER_PARTITION[1 + VERSIONS.index(sys.version_info[:2])]
    for kind, limit in limits.items():
        assert round(found[kind], 1) <= limit, f"more of {kind}"


def test_produce_and_fetch_cost_as_recorded(device_path: Path) -> None:
    found = measure(device_path / "data")
    assert found.keys() == RECORDED.keys()
    columns = {"call": 0}
    if sys.version_info[:2] in VERSIONS:
        columns["opcode"] = 1 + VERSIONS.index(sys.version_info[:2])
    for kind, column in columns.items():
        counts = {name: round(work[kind], 1) for name, work in found.items()}
        grown = [name for name in counts if counts[name] > TOLERANCE * RECORDED[name][column]]
        assert not grown, f"more of {kind}: {counts}"
