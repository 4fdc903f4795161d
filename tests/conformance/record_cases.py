"""Bad requests about records and offsets: Produce, Fetch, ListOffsets, InitProducerId."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from conformance.case import Case, Difference, World
from lakelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from lakelog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from lakelog.protocol.transactions import InitProducerIdRequest
from lakelog.records.crc import crc32c
from wire_client import batch_of

_LENGTH, _CRC, _ATTRIBUTES = 8, 17, 21
"""Where they are in a batch."""
UNKNOWN_ID = b"\x11" * 16
OLD_MS = 1_000
FUTURE_MS = 4_102_444_800_000
"""The year 2100."""


def _damaged(batch: bytes, at: int) -> bytes:
    return batch[:at] + bytes([batch[at] ^ 0xFF]) + batch[at + 1 :]


def _with(batch: bytes, at: int, layout: str, value: int) -> bytes:
    """A batch with one field of its header changed, and a checksum that fits."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, at, value)
    struct.pack_into(">I", changed, _CRC, crc32c(changed[_ATTRIBUTES:]))
    return bytes(changed)


def _attributes(bits: int) -> Callable[[World], Any]:
    return _produce(_with(batch_of(b"x"), _ATTRIBUTES, ">h", bits))


def _length(size: int) -> Callable[[World], Any]:
    return _produce(_with(batch_of(b"x"), _LENGTH, ">i", size))


def _produce(
    records: bytes | None,
    *,
    partition: int = 0,
    topic: str | None = None,
    topic_id: bytes | None = None,
    acks: int = -1,
) -> Callable[[World], Any]:
    def build(world: World) -> Any:
        data = PartitionProduceData(index=partition, records=records)
        entry = TopicProduceData(
            name=world.topic if topic is None else topic,
            topic_id=world.topic_id if topic_id is None else topic_id,
            partition_data=[data],
        )
        return ProduceRequest(
            transactional_id=None, acks=acks, timeout_ms=5_000, topic_data=[entry]
        )

    return build


def _sequenced(epoch: int, sequence: int, offset: int = 0) -> Callable[[World], Any]:
    def build(world: World) -> Any:
        producer = (world.producer_id + offset, epoch, sequence)
        return _produce(batch_of(b"x", producer=producer))(world)

    return build


PRODUCE = [
    *(
        Case("Produce", name, build, (3, 99))
        for name, build in (
            ("unknown partition", _produce(batch_of(b"x"), partition=9)),
            ("negative partition", _produce(batch_of(b"x"), partition=-1)),
            ("acks 2", _produce(batch_of(b"x"), acks=2)),
            ("acks -2", _produce(batch_of(b"x"), acks=-2)),
            ("no bytes", _produce(b"")),
            ("not a batch", _produce(b"hello")),
            ("wrong checksum", _produce(_damaged(batch_of(b"x"), 17))),
            ("changed record", _produce(_damaged(batch_of(b"xyz"), 66))),
            ("magic 1", _produce(batch_of(b"x")[:16] + b"\x01" + batch_of(b"x")[17:])),
            ("two batches", _produce(batch_of(b"x") + batch_of(b"y"))),
            ("the year 2100", _produce(batch_of(b"x", first_ms=FUTURE_MS))),
            ("too large", _produce(batch_of(b"x" * 1_100_000))),
            ("sequence that does not begin at 0", _sequenced(0, 7, offset=1)),
            ("negative sequence", _sequenced(0, -1, offset=2)),
            ("control batch", _attributes(0x20)),
            ("transactional control batch", _attributes(0x30)),
            ("delete horizon", _attributes(0x40)),
            ("unknown low attribute", _attributes(0x80)),
            ("unknown high attributes", _attributes(0x7F00)),
            ("sign of the attributes", _attributes(-0x8000)),
            ("time of the broker", _attributes(0x08)),
            ("cut off", _produce(batch_of(b"x")[:-1])),
            ("header cut off", _produce(batch_of(b"x")[:60])),
            ("length cut off", _produce(batch_of(b"x")[:11])),
            ("length to the magic", _produce(batch_of(b"x")[:17])),
            ("negative length", _length(-5)),
            ("length 10", _length(10)),
            ("length 20", _length(20)),
            ("length beyond the end", _length(100_000)),
            ("magic 3", _produce(batch_of(b"x")[:16] + b"\x03" + batch_of(b"x")[17:])),
            ("no records in it", _produce(_with(batch_of(b"x"), 57, ">i", 0))),
            ("too many records in it", _produce(_with(batch_of(b"x"), 57, ">i", 2))),
            ("offset delta", _produce(_with(batch_of(b"x"), 23, ">i", 5))),
            ("base offset", _produce(_with(batch_of(b"x"), 0, ">q", 7))),
        )
    ),
    Case(
        "Produce",
        "null records",
        _produce(None),
        (12, 12),
        Difference("INVALID_RECORD", "no answer", "Kafka fails inside"),
    ),
    Case(
        "Produce",
        "unknown codec",
        _attributes(0x07),
        (3, 99),
        Difference("INVALID_RECORD", "UNKNOWN_SERVER_ERROR", "Kafka fails inside"),
    ),
    Case(
        "Produce",
        "negative epoch",
        _sequenced(-1, 0, offset=3),
        (3, 99),
        Difference("INVALID_RECORD", "NONE", "no producer ever had this epoch"),
    ),
    Case("Produce", "unknown topic", _produce(batch_of(b"x"), topic="no-such-topic"), (3, 12)),
    Case("Produce", "empty name", _produce(batch_of(b"x"), topic=""), (3, 12)),
    Case("Produce", "unknown id", _produce(batch_of(b"x"), topic_id=UNKNOWN_ID), (13, 99)),
    Case("Produce", "no id", _produce(batch_of(b"x"), topic_id=bytes(16)), (13, 99)),
    Case(
        "Produce",
        "no key on a compacted topic",
        lambda w: _produce(batch_of(b"x"), topic=w.compacted)(w),
        (3, 12),
    ),
]


def _fetch(
    offset: int = 0,
    *,
    partition: int = 0,
    topic: str | None = None,
    topic_id: bytes | None = None,
    epoch: int = -1,
    session: tuple[int, int] = (0, -1),
    last_epoch: int = -1,
    isolation: int = 0,
    wanted: bool = True,
    replica: int = -1,
) -> Callable[[World], Any]:
    def build(world: World) -> Any:
        part = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=1 << 20,
        )
        entry = FetchTopic(
            topic=world.topic if topic is None else topic,
            topic_id=world.topic_id if topic_id is None else topic_id,
            partitions=[part],
        )
        return FetchRequest(
            replica_id=replica,
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=isolation,
            session_id=session[0],
            session_epoch=session[1],
            topics=[entry] if wanted else [],
        )

    return build


FETCH = [
    *(
        Case("Fetch", name, build)
        for name, build in (
            ("accepted", _fetch()),
            ("at the end", _fetch(3)),
            ("beyond the end", _fetch(99)),
            ("negative offset", _fetch(-1)),
            ("unknown partition", _fetch(partition=9)),
            ("negative partition", _fetch(partition=-1)),
            ("nothing", _fetch(wanted=False)),
        )
    ),
    Case("Fetch", "unknown topic", _fetch(topic="no-such-topic"), (4, 12)),
    Case("Fetch", "empty name", _fetch(topic=""), (4, 12)),
    Case("Fetch", "unknown id", _fetch(topic_id=UNKNOWN_ID), (13, 99)),
    Case("Fetch", "unknown session", _fetch(session=(12_345, 1)), (7, 99)),
    Case("Fetch", "epoch of no session", _fetch(session=(0, 5)), (7, 99)),
    Case("Fetch", "epoch from the future", _fetch(epoch=999), (9, 99)),
    Case(
        "Fetch",
        "unknown isolation level",
        _fetch(isolation=7),
        (7, 99),
        Difference("NONE", "UNKNOWN_SERVER_ERROR", "any other isolation level is read_uncommitted"),
    ),
    Case(
        "Fetch",
        "last epoch from the future",
        _fetch(3, last_epoch=999),
        (12, 99),
    ),
]


def _list(
    timestamp: int = -1,
    *,
    partition: int = 0,
    topic: str | None = None,
    epoch: int = -1,
    isolation: int = 0,
    copies: int = 1,
) -> Callable[[World], Any]:
    def build(world: World) -> Any:
        part = ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp
        )
        entry = ListOffsetsTopic(
            name=world.topic if topic is None else topic, partitions=[part] * copies
        )
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[entry], timeout_ms=5_000
        )

    return build


LIST_OFFSETS = [
    *(
        Case("ListOffsets", name, build)
        for name, build in (
            ("accepted", _list()),
            ("unknown topic", _list(topic="no-such-topic")),
            ("unknown partition", _list(partition=9)),
            ("negative partition", _list(partition=-1)),
            ("a partition twice", _list(copies=2)),
            ("unknown special time", _list(-9)),
            ("time after all records", _list(FUTURE_MS)),
        )
    ),
    Case("ListOffsets", "epoch from the future", _list(epoch=999), (4, 99)),
    Case(
        "ListOffsets",
        "unknown isolation level",
        _list(isolation=7),
        (2, 99),
        Difference("NONE", "UNKNOWN_SERVER_ERROR", "any other isolation level is read_uncommitted"),
    ),
    Case("ListOffsets", "special time -3 too early", _list(-3), (1, 6)),
    Case("ListOffsets", "special time -4 too early", _list(-4), (1, 7)),
    Case("ListOffsets", "special time -5 too early", _list(-5), (1, 8)),
    Case("ListOffsets", "special time -5", _list(-5), (9, 99)),
    Case("ListOffsets", "special time -6 too early", _list(-6), (1, 10)),
]


def _identity(
    name: str | None = None, timeout_ms: int = 60_000, held: tuple[int, int] = (-1, -1)
) -> Callable[[World], Any]:
    return lambda world: InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=held[0],
        producer_epoch=held[1],
    )


INIT_PRODUCER_ID = [
    Case("InitProducerId", "accepted", _identity()),
    Case("InitProducerId", "no timeout without a transaction", _identity(timeout_ms=-1)),
    Case("InitProducerId", "empty transactional id", _identity("")),
    Case("InitProducerId", "id without epoch", _identity(held=(5, -1)), (3, 99)),
    Case("InitProducerId", "epoch without id", _identity(held=(-1, 5)), (3, 99)),
]

CASES = [*PRODUCE, *FETCH, *LIST_OFFSETS, *INIT_PRODUCER_ID]
