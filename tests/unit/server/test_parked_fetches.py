"""A Fetch that waits is answered after every kind of append, commit and end of a partition."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.shard import TransactionMarker
from lakelog.coordinator.transaction.endings import Marker
from lakelog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from lakelog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.server.coordinators.partition_log import LocalPartitionLog, LocalPartitionLogs
from lakelog.server.handlers.fetch import fetch
from lakelog.server.handlers.produce import produce
from lakelog.storage.validation import WALKED_AT_ONCE
from memory_broker import Asked, MemoryBroker
from socketless_broker import FakeSocket, SocketlessBroker, request_frame
from storage_kit import append_in_transaction, make_batch
from wire_client import produce_request

E = ErrorCode
TOPIC = "orders"
LEADER, FOLLOWER = 1, 2
LONG_MS = 600_000
PRODUCER = (7, 0)
MARKER = TransactionMarker(*PRODUCER, True, 0, 0)


def request(offset: int = 0, *, committed: bool = False) -> FetchRequest:
    entry = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=LONG_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=[entry])],
    )


def park(world: MemoryBroker, *, committed: bool = False) -> Asked[Any]:
    """Start a Fetch that finds nothing."""
    waiting = world.start(fetch, request(committed=committed), 12)
    world.pass_time(0.01)
    assert not waiting.is_answered
    return waiting


def answer(world: MemoryBroker, waiting: Asked[Any]) -> tuple[ErrorCode, bool]:
    """Return the error of the answered Fetch, and whether it has records."""
    world.pass_time(1.0)
    assert waiting.is_answered
    (found,) = waiting.response().responses[0].partitions
    return ErrorCode(found.error_code), bool(found.records)


def send(
    world: MemoryBroker, *, acks: int, batch: bytearray | None = None, timeout_ms: int = 1000
) -> Asked[Any]:
    entry = PartitionProduceData(index=0, records=batch or make_batch())
    topic = TopicProduceData(name=TOPIC, partition_data=[entry])
    asked = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
    return world.start(produce, asked, 12)


def log_of(world: MemoryBroker) -> LocalPartitionLog:
    """Return the log that a coordinator writes."""
    broker = world.broker
    parts = broker.partitions, broker.purgatory, broker.clock, world.tasks, broker.checks
    logs = LocalPartitionLogs(TOPIC, 1.0, *parts, is_current=lambda: True)
    return logs.open(0, world.partition(TOPIC).leader_epoch)


def lead(world: MemoryBroker, *isr: int) -> Partition:
    """Lead the partition with another replica, which has fetched nothing."""
    partition = world.partition(TOPIC)
    partition.assume(Role(partition.leader_epoch, LEADER, True, isr, (FOLLOWER,)), 0)
    return partition


def append_after_a_job(world: MemoryBroker) -> None:
    world.partition(TOPIC).log.segments.active.indexes.unload()
    send(world, acks=1)


def commit_by_a_follower(world: MemoryBroker) -> None:
    partition = lead(world, LEADER, FOLLOWER)
    send(world, acks=-1)
    partition.note_fetch(FOLLOWER, 0, 1, 0)


def commit_by_a_shorter_isr(world: MemoryBroker) -> None:
    lead(world, LEADER, FOLLOWER)
    send(world, acks=1)
    lead(world, LEADER)


def commit_by_a_setting(world: MemoryBroker) -> None:
    partition = world.partition(TOPIC)
    role = Role(partition.leader_epoch, LEADER, True, (LEADER,), (FOLLOWER,))
    partition.use_config(partition.log.config._replace(min_insync_replicas=2))
    partition.assume(role, 0)
    send(world, acks=1)
    partition.use_config(partition.log.config._replace(min_insync_replicas=1))


def append_without_a_descriptor(world: MemoryBroker) -> None:
    """With the page cache the producer gets an error, although the records are committed."""
    partition = world.partition(TOPIC)
    partition.use_config(partition.log.config._replace(flush_messages=1))
    world.disk.fail("sync", errno.EMFILE, suffix=".log")
    send(world, acks=1)


MARKERS: dict[str, Callable[[MemoryBroker], object]] = {
    "of a coordinator's topic": lambda world: world.run(log_of(world).append_marker(MARKER)),
    "awaited": lambda world: world.run(world.broker.markers.write([Marker(TOPIC, 0, *MARKER)])),
    "begun": lambda world: world.run(world.broker.markers.begin(Marker(TOPIC, 0, *MARKER))),
}
APPENDS: dict[str, Callable[[MemoryBroker], object]] = {
    "acks=0": lambda world: send(world, acks=0),
    "acks=1": lambda world: send(world, acks=1),
    "acks=all": lambda world: send(world, acks=-1),
    "walked in slices": lambda world: send(world, acks=1, batch=make_batch(WALKED_AT_ONCE + 1)),
    "after a job": append_after_a_job,
    "without a descriptor": append_without_a_descriptor,
    "committed by a follower": commit_by_a_follower,
    "committed by a shorter ISR": commit_by_a_shorter_isr,
    "committed by a setting": commit_by_a_setting,
    "of a coordinator": lambda world: world.run(log_of(world).append(make_batch())),
    **{f"marker {name}": end for name, end in MARKERS.items()},
}


@pytest.mark.parametrize("name", APPENDS)
@pytest.mark.parametrize("durability", ["page-cache", "fsync"])
def test_after_an_append(world: MemoryBroker, name: str, durability: str) -> None:
    world.create(TOPIC, durability=durability)
    waiting = park(world)
    APPENDS[name](world)
    assert answer(world, waiting) == (E.NONE, True)


@pytest.mark.parametrize("name", MARKERS)
def test_after_the_marker_of_an_open_transaction(world: MemoryBroker, name: str) -> None:
    world.create(TOPIC)
    append_in_transaction(world.partition(TOPIC).log, (*PRODUCER, 0), now_ms=0)
    waiting = park(world, committed=True)
    MARKERS[name](world)
    assert answer(world, waiting) == (E.NONE, True)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda world: world.delete(TOPIC), E.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda world: world.change_leader(TOPIC, 2, (1, 2)), E.NOT_LEADER_OR_FOLLOWER),
        (lambda world: world.partition(TOPIC).take_offline("a test"), E.KAFKA_STORAGE_ERROR),
    ],
)
def test_after_the_end_of_the_leader(
    world: MemoryBroker, end: Callable[[MemoryBroker], object], code: ErrorCode
) -> None:
    world.create(TOPIC)
    waiting = park(world)
    end(world)
    assert answer(world, waiting) == (code, False)


def test_after_a_failed_write(world: MemoryBroker) -> None:
    world.create(TOPIC)
    waiting = park(world)
    world.disk.fail("write", errno.EIO, suffix=".log")
    with suppress(KafkaError):
        world.append(TOPIC)
    assert answer(world, waiting) == (E.KAFKA_STORAGE_ERROR, False)


# Requests that the broker knows from earlier ones of their connection.


async def park_on_a_connection(broker: SocketlessBroker) -> FakeSocket:
    """Start a Fetch from the end of the log on a connection of its own."""
    partition = broker.server.broker.partitions.leader(TOPIC, 0)
    producer = broker.connection, broker.socket
    waiting = broker.connect()
    assert not broker.ask(request_frame(request(partition.log.log_end_offset), 12))
    broker.connection, broker.socket = producer
    return waiting


@pytest.mark.parametrize("way", ["acks=1", "acks=all", "sampled", "replicated"])
def test_after_a_known_produce(tmp_path: Path, way: str) -> None:
    acks = 1 if way in ("acks=1", "sampled") else -1

    def send_known(broker: SocketlessBroker, partition: Partition) -> None:
        broker.ask(request_frame(produce_request(TOPIC, bytes(make_batch()), acks=acks), 12))
        if way == "replicated":
            partition.note_fetch(FOLLOWER, 0, partition.log.log_end_offset, 0)

    async def main() -> None:
        broker = SocketlessBroker(tmp_path)
        await broker.start()
        await broker.create_topic(TOPIC)
        partition = broker.server.broker.partitions.leader(TOPIC, 0)
        if way == "replicated":
            isr = (LEADER, FOLLOWER)
            partition.assume(Role(partition.leader_epoch, LEADER, True, isr, (FOLLOWER,)), 0)
        for _ in range(8):
            send_known(broker, partition)
        waiting = await park_on_a_connection(broker)
        broker.connection.sampling.left *= way != "sampled"
        send_known(broker, partition)
        await asyncio.wait_for(waiting.was_sent.wait(), 10)
        await broker.stop()

    asyncio.run(main())
