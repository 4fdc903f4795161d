"""Costs of a request do not depend on other data, nor idle costs on its amount."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from counted_work import lines_run
from lakelog.base.config.log_config import LogConfig
from socketless_broker import SocketlessBroker, request_frame
from storage_kit import make_batch
from wire_client import fetch_request, produce_request

PARTITIONS = 150
CONNECTIONS = 150
SEGMENTS = 60
RECORD = bytes(make_batch(1))


def costs(broker: SocketlessBroker, topic: str) -> dict[str, int]:
    """Lines for requests of a new connection: the first one and its repetitions."""
    broker.connect()
    produce = request_frame(produce_request(topic, RECORD, acks=1), 9)
    fetch = request_frame(fetch_request(topic, 0, partition_max_bytes=1), 12)
    broker.ask(produce)
    assert len(broker.ask(fetch)) > len(RECORD)
    broker.connect()
    return {
        f"{name} {number}": lines_run(lambda data=data: broker.ask(data))  # type: ignore[misc]
        for name, data in (("produce", produce), ("fetch", fetch))
        for number in range(4)
    }


def run(folder: Path, scenario: Callable[[SocketlessBroker], Awaitable[None]]) -> None:
    async def main() -> None:
        broker = SocketlessBroker(folder / "data")
        await broker.start()
        try:
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(main())


def test_requests_cost_the_same_beside_many_partitions_and_connections(tmp_path: Path) -> None:
    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("warm")
        costs(broker, "warm")
        await broker.create_topic("few")
        few = costs(broker, "few")
        await broker.create_topic("many", partitions=PARTITIONS)
        for _ in range(CONNECTIONS):
            broker.connect()
            broker.ask(request_frame(produce_request("few", RECORD, acks=1), 9))
        await broker.create_topic("beside")
        assert costs(broker, "beside") == few

    run(tmp_path, scenario)


def test_a_read_costs_the_same_in_a_log_of_many_segments(tmp_path: Path) -> None:
    async def scenario(broker: SocketlessBroker) -> None:
        for topic in ("warm", "short", "long"):
            await broker.create_topic(topic)
            small = LogConfig(segment_bytes=4 * len(RECORD))
            broker.server._replicas.partitions.leader(topic, 0).use_config(small)
            for _ in range(4 * (SEGMENTS if topic == "long" else 4)):
                broker.connect()
                broker.ask(request_frame(produce_request(topic, RECORD, acks=1), 9))
            for segment in broker.server._replicas.partitions.leader(topic, 0).log.segments[:-1]:
                segment.unload()
        found = {}
        for topic in ("warm", "short", "long"):
            broker.connect()
            read = request_frame(fetch_request(topic, 2, partition_max_bytes=1), 12)
            broker.socket.was_sent.clear()
            broker.ask(read)
            await broker.socket.was_sent.wait()  # a thread reads the index first
            assert len(broker.ask(read)) > len(RECORD)
            found[topic] = [lines_run(lambda data=read: broker.ask(data)) for _ in range(3)]  # type: ignore[misc]
        for long, short in zip(found["long"], found["short"], strict=True):
            assert abs(long - short) < 10

    run(tmp_path, scenario)


def test_loaded_indexes_are_not_counted_again_with_each_log(tmp_path: Path) -> None:
    """The first append to a log after a start loads its index."""

    async def lines_of_first(folder: Path, logs: int) -> int:
        broker = SocketlessBroker(folder)
        await broker.start()
        await broker.create_topic("many", partitions=logs)
        for index in range(logs):
            broker.ask(request_frame(produce_request("many", RECORD, partition=index, acks=1), 9))
        await broker.stop()
        again = SocketlessBroker(folder)
        await again.start()
        requests = [
            request_frame(produce_request("many", RECORD, partition=index, acks=1), 9)
            for index in range(logs)
        ]
        found = [lines_run(lambda data=data: again.ask(data)) for data in requests]  # type: ignore[misc]
        await again.stop()
        return found[-1]

    few = asyncio.run(lines_of_first(tmp_path / "few", 10))
    assert asyncio.run(lines_of_first(tmp_path / "many", 50)) == few


def test_partitions_that_rest_cost_the_chores_nothing(tmp_path: Path) -> None:
    """But a look at how far each is, before the checkpoints are written."""

    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("many", partitions=PARTITIONS)
        chores = broker.server._maintenance
        await chores.checkpointed()
        # On a slow machine the timer has asked for another checkpoint meanwhile.
        while chores._checkpointing:
            await chores.checkpointed()
        assert lines_run(chores._flush_aged) < 10
        assert lines_run(chores._checkpoint_changes) < 4 * PARTITIONS + 100
        assert not chores._checkpointing
        broker.ask(request_frame(produce_request("many", RECORD, acks=1), 9))
        chores._checkpoint_changes()
        assert chores._checkpointing

    run(tmp_path, scenario)
