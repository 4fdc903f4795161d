"""What one request costs the broker as partitions, connections and the log grow."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, repeat

from brokers import Broker
from scale_load import (
    BusyConnections,
    Partition,
    batch,
    connect,
    create,
    fetch_frame,
    frame,
    high_watermark,
    produce_frame,
    to_each,
)

from lakelog.protocol.connections import ApiVersionsRequest
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from wire_client import WireClient

Note = Callable[[str], None]
Curve = dict[str, dict[str, float]]
"""Microseconds of the server's CPU, by request, then by size."""

_RECORD = batch(1000)
_FETCH_BYTES = 1024
_FILL_SIZE = 64 * 1024
_FILL_RECORDS = 64
_SEGMENT_BYTES = 16 << 20
_WARM_REQUESTS = 12_000
_HELD_PARTITIONS = 16
_TOPIC_PARTITIONS = 100


def _produce(partition: Partition) -> bytes:
    return produce_frame(partition, _RECORD)


def _fetch(partition: Partition) -> bytes:
    return fetch_frame(partition, 0, _FETCH_BYTES)


class _Requests:
    """Requests of a busy connection: always to its own partition, or to all in turn."""

    def __init__(self, partitions: Sequence[Partition], kind: Callable[[Partition], bytes]) -> None:
        self._partitions = partitions
        self._kind = kind

    def own(self, number: int) -> Iterator[bytes]:
        return repeat(self._kind(self._partitions[number % len(self._partitions)]))

    def in_iteration(self, number: int) -> Iterator[bytes]:
        own = self._partitions[number :: BusyConnections.COUNT] or self._partitions[:1]
        return cycle([self._kind(partition) for partition in own])


def _warm(busy: BusyConnections, partitions: Sequence[Partition]) -> None:
    """Warm up both servers; a JVM compiles hot code only after a while."""
    for kind in (_produce, _fetch):
        busy.cpu_us(_WARM_REQUESTS, _Requests(partitions, kind).own)


def _grown(count: int, made: int) -> list[Partition]:
    """The partitions that are missing, in topics of some hundred."""
    return [
        (f"grown-to-{count}-{index // _TOPIC_PARTITIONS}", index % _TOPIC_PARTITIONS)
        for index in range(count - made)
    ]


def over_partitions(
    broker: Broker, counts: Sequence[int], requests: int, limit_s: float, note: Note
) -> Curve:
    """Measure one partition for each busy connection, and then all partitions in turn.

    After `limit_s` no more partitions are created, and the existing ones are measured.
    """
    deadline = time.monotonic() + limit_s
    curve: Curve = {}
    made: list[Partition] = []
    busy = BusyConnections(broker)
    try:
        for count in counts:
            note(f"{broker.name}: requests beside {count:,} partitions")
            fresh = create(broker, _grown(count, len(made)), deadline)
            if not fresh:
                break
            to_each(broker, [_produce(partition) for partition in fresh])
            made += fresh
            if not curve:
                _warm(busy, made)
            produce, fetch = _Requests(made, _produce), _Requests(made, _fetch)
            curve[f"{len(made):,}"] = {
                "produce to one": busy.cpu_us(requests, produce.own),
                "fetch from one": busy.cpu_us(requests, fetch.own),
                "produce to all": busy.cpu_us(requests, produce.in_iteration),
                "fetch from all": busy.cpu_us(requests, fetch.in_iteration),
            }
    finally:
        busy.close()
    return curve


class HeldConnections:
    """Connections that have done what clients do, and are then silent."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._partitions = [("held", index) for index in range(_HELD_PARTITIONS)]
        self._held: list[WireClient] = []
        self.bytes_each = 0.0
        """Resident memory for each, when all were there."""

    def curve(self, counts: Sequence[int], requests: int, note: Note) -> Curve:
        create(self._broker, self._partitions)
        busy = BusyConnections(self._broker)
        curve: Curve = {}
        try:
            _warm(busy, self._partitions)
            before = self._broker.resident_mb()
            for count in counts:
                note(f"{self._broker.name}: requests beside {count:,} connections")
                while len(self._held) < count:
                    self._held.append(self._connect(len(self._held)))
                if count == max(counts):
                    self.bytes_each = (self._broker.resident_mb() - before) * 1e6 / count
                produce = _Requests(self._partitions, _produce).own
                fetch = _Requests(self._partitions, _fetch).own
                curve[f"{count:,}"] = {
                    "produce": busy.cpu_us(requests, produce),
                    "fetch": busy.cpu_us(requests, fetch),
                }
        finally:
            busy.close()
            for wire in self._held:
                wire.close()
        return curve

    def _connect(self, number: int) -> WireClient:
        wire = connect(self._broker)
        partition = self._partitions[number % len(self._partitions)]
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=partition[0])])
        for request in (
            frame(ApiVersionsRequest(), 3),
            frame(wanted, 12),
            _produce(partition),
            _produce(partition),
            _fetch(partition),
            _fetch(partition),
        ):
            wire.send_bytes(request)
            wire.receive_frame()
        return wire


def over_length(broker: Broker, megabytes: Sequence[int], requests: int, note: Note) -> Curve:
    """One log of many segments, read at random and at its end, and appended to."""
    partition = "long", 0
    create(broker, [partition], configs={"segment.bytes": str(_SEGMENT_BYTES)})
    filling = produce_frame(partition, batch(_FILL_SIZE, _FILL_RECORDS))
    curve: Curve = {}
    filled = 0
    busy = BusyConnections(broker)
    try:
        for size in megabytes:
            note(f"{broker.name}: requests of a log of {size:,} MB")
            count = max((size * 1_000_000 - filled) // _FILL_SIZE, 1)
            to_each(broker, [filling] * count)
            filled += count * _FILL_SIZE
            if not curve:
                _warm(busy, [partition])
            curve[f"{size:,} MB"] = _length_row(broker, busy, partition, requests)
    finally:
        busy.close()
    return curve


def _length_row(
    broker: Broker, busy: BusyConnections, partition: Partition, requests: int
) -> dict[str, float]:
    end = high_watermark(broker, partition)
    chance = random.Random(end)
    anywhere = [
        fetch_frame(partition, chance.randrange(end), _FETCH_BYTES) for _ in range(requests)
    ]
    tail = fetch_frame(partition, end - 1, _FETCH_BYTES)
    return {
        "fetch anywhere": busy.cpu_us(requests, lambda number: cycle(anywhere[number:])),
        "fetch the end": busy.cpu_us(requests, lambda _: repeat(tail)),
        "produce": busy.cpu_us(requests, lambda _: repeat(_produce(partition))),
    }
