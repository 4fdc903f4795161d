"""The clients of `scale.py`: requests of many partitions in flight, and a few busy connections."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from brokers import Broker, BrokerError

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import FetchRequest
from lakelog.protocol.produce import ProduceRequest
from lakelog.protocol.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from lakelog.records.builder import BatchBuilder
from lakelog.wire.framing import decode_response, encode_request
from wire_client import FETCH_VERSION, PRODUCE_VERSION, WireClient, fetch_request, produce_request

Partition = tuple[str, int]

_PRODUCE = api_for(ProduceRequest)
_FETCH = api_for(FetchRequest)
_PASSING = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_IN_FLIGHT = 32
_PARTITIONS_PER_REQUEST = 500
_PATIENCE_S = 400.0
_WAIT_S = 0.05


def batch(size: int, records: int = 1) -> bytes:
    """One batch of about `size` bytes."""
    builder = BatchBuilder()
    now = int(time.time() * 1000)
    for _ in range(records):
        builder.append(now, None, bytes(max(size // records - 10, 1)))
    return bytes(builder.build())


def frame(message: Any, version: int) -> bytes:
    return b"".join(encode_request(api_for(type(message)), version, 1, "scale", message))


def produce_frame(partition: Partition, records: bytes) -> bytes:
    topic, index = partition
    return frame(produce_request(topic, records, partition=index, acks=1), PRODUCE_VERSION)


def fetch_frame(partition: Partition, offset: int, max_bytes: int) -> bytes:
    topic, index = partition
    request = fetch_request(
        topic, offset, partition=index, partition_max_bytes=max_bytes, max_wait_ms=500
    )
    return frame(request, FETCH_VERSION)


def connect(broker: Broker) -> WireClient:
    wire = WireClient(f"127.0.0.1:{broker.port}")
    wire.socket.settimeout(_PATIENCE_S)
    return wire


def names(partitions: int, topics: int) -> list[Partition]:
    each = -(-partitions // topics)
    every = ((f"scale-{topic}", index) for topic in range(topics) for index in range(each))
    return list(itertools.islice(every, partitions))


def create(
    broker: Broker,
    partitions: Sequence[Partition],
    deadline: float = math.inf,
    note: Callable[[str], None] = lambda _: None,
    *,
    configs: Mapping[str, str] | None = None,
) -> list[Partition]:
    """Create the topics of these partitions, several in one request, and wait for their leaders.

    No request begins after `deadline`, on the monotonic clock. Return the created partitions.
    """
    made: list[Partition] = []
    with connect(broker) as wire:
        for part in _portions(partitions):
            if time.monotonic() > deadline:
                break
            request = CreateTopicsRequest(
                topics=_topics(part, configs or {}), timeout_ms=int(_PATIENCE_S * 1000)
            )
            for topic in wire.call(request, 7).topics:
                _check(topic.error_code, f"creating {topic.name}")
            wait_until_served(broker, last_of_each(part))
            made += part
            note(f"{broker.name}: {len(made):,} partitions made")
    return made


def last_of_each(partitions: Iterable[Partition]) -> list[Partition]:
    """Of each topic."""
    return list({topic: (topic, index) for topic, index in partitions}.values())


def _portions(partitions: Sequence[Partition]) -> Iterator[list[Partition]]:
    """Whole topics together, not many partitions in all unless one topic has them."""
    portion: list[Partition] = []
    for _, topic in itertools.groupby(partitions, lambda partition: partition[0]):
        own = list(topic)
        if portion and len(portion) + len(own) > _PARTITIONS_PER_REQUEST:
            yield portion
            portion = []
        portion += own
    yield portion


def _topics(partitions: Sequence[Partition], configs: Mapping[str, str]) -> list[CreatableTopic]:
    own = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    return [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1, configs=own)
        for name, count in Counter(topic for topic, _ in partitions).items()
    ]


def wait_until_served(broker: Broker, partitions: Iterable[Partition]) -> None:
    """A fetch of each of these partitions is answered without an error."""
    deadline = time.monotonic() + _PATIENCE_S
    with connect(broker) as wire:
        for topic, index in partitions:
            while code := _fetch_error(wire, topic, index):
                if time.monotonic() > deadline:
                    _check(code, f"waiting for {topic}-{index}")
                time.sleep(_WAIT_S)


def _fetch_error(wire: WireClient, topic: str, index: int) -> int:
    request = fetch_request(topic, 0, partition=index, partition_max_bytes=1)
    answer = wire.call(request, FETCH_VERSION)
    return int(answer.error_code or answer.responses[0].partitions[0].error_code)


def high_watermark(broker: Broker, partition: Partition) -> int:
    with connect(broker) as wire:
        wire.send_bytes(fetch_frame(partition, 0, 1))
        answer = decode_response(_FETCH, FETCH_VERSION, wire.receive_frame())[1]
    return int(answer.responses[0].partitions[0].high_watermark)


def _check(code: int, what: str) -> None:
    if code:
        raise BrokerError(f"{what}: {ErrorCode(code).name}")


def error_of(request: bytes, answer: bytes) -> int:
    """The error code of a Produce or Fetch of one partition."""
    if _api_key(request) == _PRODUCE.key:
        produced = decode_response(_PRODUCE, PRODUCE_VERSION, answer)[1]
        return int(produced.responses[0].partition_responses[0].error_code)
    fetched = decode_response(_FETCH, FETCH_VERSION, answer)[1]
    return int(fetched.error_code or fetched.responses[0].partitions[0].error_code)


def _api_key(request: bytes) -> int:
    return int.from_bytes(request[4:6], "big")


def to_each(broker: Broker, frames: Sequence[bytes], bytes_min: int = 0) -> None:
    """Sends all on one connection, some in flight at a time, until none is refused any more.

    A broker that has just started may not know yet that it leads a partition.
    """
    deadline = time.monotonic() + _PATIENCE_S
    with connect(broker) as wire:
        while frames:
            frames = _refused(wire, frames, bytes_min)
            if frames and time.monotonic() > deadline:
                raise BrokerError(f"{len(frames)} partitions are still refused")


def _refused(wire: WireClient, frames: Sequence[bytes], bytes_min: int) -> list[bytes]:
    in_flight: deque[bytes] = deque()
    refused = []
    for data in (*frames, *[b""] * _IN_FLIGHT):
        in_flight.append(data)
        wire.send_bytes(data)
        if len(in_flight) <= _IN_FLIGHT or not (request := in_flight.popleft()):
            continue
        answer = wire.receive_frame()
        code = error_of(request, answer)
        if code in _PASSING:
            refused.append(request)
            continue
        _check(code, "a partition in turn")
        if len(answer) < bytes_min:
            raise BrokerError(f"an answer of {len(answer)} bytes, which lacks the records")
    return refused


class BusyConnections:
    """A few connections that send in step; `frames` gives each its endless row of requests."""

    COUNT = 4

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._wires = [connect(broker) for _ in range(self.COUNT)]

    def close(self) -> None:
        for wire in self._wires:
            wire.close()

    def cpu_us(self, requests: int, frames: Callable[[int], Iterable[bytes]]) -> float:
        """The server's CPU time for one of so many requests, in microseconds."""
        rows = [iter(frames(number)) for number in range(len(self._wires))]
        self._iterations(rows, len(self._wires) * 8)
        before = self._broker.cpu_seconds()
        sent = self._iterations(rows, requests)
        return (self._broker.cpu_seconds() - before) / sent * 1e6

    def _iterations(self, rows: list[Any], requests: int) -> int:
        """The first and the last loop iteration's answers are looked at."""
        iterations = -(-requests // len(rows))
        for iteration in range(iterations):
            sent = [next(row) for row in rows]
            for wire, data in zip(self._wires, sent, strict=True):
                wire.send_bytes(data)
            for wire, data in zip(self._wires, sent, strict=True):
                answer = wire.receive_frame()
                if iteration in (0, iterations - 1):
                    _check(error_of(data, answer), "a busy connection")
        return iterations * len(rows)
