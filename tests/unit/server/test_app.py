"""The object graph: effects of metadata changes on it, and starts that fail or end."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.topics import (
    NewTopic,
    TopicReference,
    plan_create_topics,
    plan_delete_topics,
)
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import ConfigRecord, ResourceType
from lakelog.metadata.store.embedded import METADATA_FILE, EmbeddedStore
from lakelog.protocol.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from lakelog.replica.partition import Partition
from lakelog.runtime.aio import AsyncioNet, AsyncioTasks
from lakelog.runtime.api import Buffer
from lakelog.runtime.posix import PosixDisk, PythonProcesses, SystemClock, SystemRandom
from lakelog.server.app import Server
from lakelog.server.handlers.topics import delete_records
from lakelog.server.options import Environment, ServeOptions, StartError
from lakelog.storage.checkpoint import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, decode_offsets
from lakelog.storage.preparation import wait_for
from storage_kit import make_batch

OFFSETS = "__consumer_offsets"


class WatchedNet(AsyncioNet):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.backlogs: list[int] = []

    def listen(self, host: str, port: int, *, backlog: int) -> Any:
        self.backlogs.append(backlog)
        return super().listen(host, port, backlog=backlog)


class Running:
    """A server that has not been started, and the ways to change its metadata."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        loop = asyncio.get_running_loop()
        self.tasks = AsyncioTasks(loop)
        self.net = WatchedNet(loop)
        self.clock, self.random = SystemClock(), SystemRandom()
        store = EmbeddedStore(data / METADATA_FILE, self.clock)
        processes = PythonProcesses()
        world = Environment(
            self.clock, PosixDisk(), self.net, self.tasks, self.random, processes, store, 64
        )
        config = BrokerConfig({"offsets.topic.num.partitions": "3", **settings})
        self.server = Server(ServeOptions(data, config, "127.0.0.1:0"), world)
        self.broker = self.server.broker

    async def create(self, name: str, partitions: int = 1) -> None:
        (result,) = await self.broker.metadata.submit(
            lambda image: plan_create_topics(
                image,
                [NewTopic(name, partitions, 1)],
                broker=self.broker.config,
                random=self.random,
            )
        )
        assert not result.error, result

    async def delete(self, name: str) -> None:
        (result,) = await self.broker.metadata.submit(
            lambda image: plan_delete_topics(image, [TopicReference(name)])
        )
        assert not result.error, result

    async def configure(self, kind: ResourceType, name: str, key: str, value: str) -> None:
        record = ConfigRecord(kind, name, key, value)
        await self.broker.metadata.submit(lambda image: Plan((record,), None))

    def partition(self, name: str, index: int = 0) -> Partition:
        return self.broker.partitions.leader(name, index)


def run(path: Path, scenario: Callable[[Running], Coroutine[Any, Any, None]], **keys: str) -> None:
    """In a broker that is stopped cleanly afterwards; `keys` are settings with `_` for `.`."""

    async def whole() -> None:
        settings = {key.replace("_", "."): value for key, value in keys.items()}
        running = Running(path / "data", settings)
        try:
            await running.server.start()
            await scenario(running)
            await running.server.stop()
        finally:
            running.tasks.close()

    asyncio.run(asyncio.wait_for(whole(), 120))


def test_a_topic_is_there_when_its_creation_is_answered(tmp_path: Path) -> None:
    async def scenario(running: Running) -> None:
        await running.create("orders", 20)
        assert [running.partition("orders", index).index for index in range(20)] == [*range(20)]
        topic_id = running.broker.image.topic_ids["orders"]
        await running.delete("orders")
        with pytest.raises(KafkaError):
            running.partition("orders")
        assert running.broker.partitions.get(topic_id, 0) is None

    run(tmp_path, scenario)


class Wait:
    def __init__(self) -> None:
        self.tried = 0

    def try_complete(self) -> bool:
        self.tried += 1
        return True

    def expire(self) -> None:
        raise AssertionError("not expected to expire")

    def fail(self, error: Exception) -> None:
        raise error


def test_a_deletion_wakes_waits_on_the_topic_alone(tmp_path: Path) -> None:
    async def scenario(running: Running) -> None:
        await running.create("orders", 2)
        await running.create("other")
        waits = [Wait(), Wait()]
        deadline = running.clock.monotonic() + 3600
        for wait, partition in zip(
            waits, (running.partition("orders", 1), running.partition("other")), strict=True
        ):
            running.broker.purgatory.park(wait, [partition.key], deadline)
        await running.delete("orders")
        assert [wait.tried for wait in waits] == [1, 0]

    run(tmp_path, scenario)


def test_the_coordinator_hears_of_deleted_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(running: Running) -> None:
        heard: list[tuple[str, bytes]] = []
        monkeypatch.setattr(
            running.broker.groups, "on_topics_deleted", lambda topics: heard.extend(topics)
        )
        await running.create("orders")
        topic_id = running.broker.image.topic_ids["orders"]
        await running.configure(ResourceType.TOPIC, "orders", "retention.ms", "5")
        assert heard == []
        await running.delete("orders")
        assert heard == [("orders", topic_id)]

    run(tmp_path, scenario)


def test_groups_come_and_go_with_their_topic(tmp_path: Path) -> None:
    async def loaded(running: Running) -> None:
        loading = [task for task in asyncio.all_tasks() if task.get_name() == "load-groups"]
        await asyncio.gather(*loading)
        assert running.broker.groups.partitions == [0, 1, 2]

    async def scenario(running: Running) -> None:
        assert running.broker.groups.partitions == []
        await running.broker.topics.ensure_group_topic()
        await loaded(running)
        await running.delete(OFFSETS)
        assert running.broker.groups.partitions == []
        await running.broker.topics.ensure_group_topic()
        await loaded(running)

    run(tmp_path, scenario)


def test_groups_are_loaded_when_the_broker_is_ready(tmp_path: Path) -> None:
    async def make(running: Running) -> None:
        await running.broker.topics.ensure_group_topic()

    async def look(running: Running) -> None:
        assert running.broker.groups.partitions == [0, 1, 2]

    run(tmp_path, make)
    run(tmp_path, look)


def test_a_dynamic_setting_counts_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(running: Running) -> None:
        await running.create("orders")
        await running.configure(ResourceType.BROKER, "", "message.max.bytes", "5000")
        assert running.broker.config.get_int("message.max.bytes") == 5000
        assert running.partition("orders").log.config.max_message_bytes == 5000
        await running.configure(ResourceType.TOPIC, "orders", "max.message.bytes", "7000")
        assert running.partition("orders").log.config.max_message_bytes == 7000
        await running.create("later")
        assert running.partition("later").log.config.max_message_bytes == 5000
        await running.configure(ResourceType.BROKER, "", "message.max.bytes", "many")
        assert running.broker.config.get_int("message.max.bytes") == 5000

    run(tmp_path, scenario)
    assert "dynamic configuration is ignored" in caplog.text


def test_records_survive_a_restart(tmp_path: Path) -> None:
    async def write(running: Running) -> None:
        await running.create("orders")
        now = running.clock.wall_ms()
        running.partition("orders").append(make_batch(3, timestamp=now), now)

    async def look(running: Running) -> None:
        partition = running.partition("orders")
        assert partition.watermark.offset == partition.log.recovery_point == 3
        assert partition.leader_epoch == 1

    run(tmp_path, write)
    run(tmp_path, look)


def test_a_stop_leaves_the_checkpoints_of_that_moment(tmp_path: Path) -> None:
    def offsets(name: str) -> dict[tuple[str, int], int]:
        found = decode_offsets((tmp_path / "data" / name).read_bytes())
        return {key: offset for key, offset in found.items() if key[0] == "orders"}

    async def first(running: Running) -> None:
        await running.create("orders", 2)
        await append(running)

    async def append(running: Running) -> None:
        now = running.clock.wall_ms()
        partition = running.partition("orders")
        wait_for(lambda: partition.append(make_batch(5, timestamp=now), now))
        partition.delete_records(partition.watermark.offset - 2)

    never = "3600000"
    run(tmp_path, first, replica_high_watermark_checkpoint_interval_ms=never)
    assert offsets(HIGH_WATERMARKS) == {("orders", 0): 5, ("orders", 1): 0}
    run(tmp_path, append, replica_high_watermark_checkpoint_interval_ms=never)
    assert offsets(HIGH_WATERMARKS) == {("orders", 0): 10, ("orders", 1): 0}
    assert offsets(RECOVERY_POINTS) == {("orders", 0): 10, ("orders", 1): 0}
    assert offsets(LOG_STARTS) == {("orders", 0): 8}


def log_starts(path: Path) -> dict[tuple[str, int], int]:
    file = path / "data" / LOG_STARTS
    found = decode_offsets(file.read_bytes()) if file.exists() else {}
    return {key: offset for key, offset in found.items() if key[0] == "orders"}


def deletion(*offsets: int) -> DeleteRecordsRequest:
    partitions = [
        DeleteRecordsPartition(partition_index=index, offset=offset)
        for index, offset in enumerate(offsets)
    ]
    topic = DeleteRecordsTopic(name="orders", partitions=partitions)
    return DeleteRecordsRequest(topics=[topic], timeout_ms=1000)


def test_deletions_are_durable_when_they_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[str] = []
    write_atomic = PosixDisk.write_atomic

    def watched(self: PosixDisk, path: Path, data: Buffer) -> None:
        written.append(path.name)
        write_atomic(self, path, data)

    def full(self: PosixDisk, path: Path, data: Buffer) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    async def scenario(running: Running) -> None:
        await running.create("orders", 3)
        now = running.clock.wall_ms()
        for index in range(3):
            running.partition("orders", index).append(make_batch(9, timestamp=now), now)
        assert await running.broker.checkpointed()
        monkeypatch.setattr(PosixDisk, "write_atomic", watched)
        context: Any = None
        first = delete_records(running.broker, context, deletion(4, 5, 99))
        second = delete_records(running.broker, context, deletion(6))
        third = delete_records(running.broker, context, deletion(7))
        answers = await asyncio.gather(first, second, third)
        found = [[(r.error_code, r.low_watermark) for r in a.topics[0].partitions] for a in answers]
        assert found == [[(0, 4), (0, 5), (1, -1)], [(0, 6)], [(0, 7)]]
        assert log_starts(tmp_path) == {("orders", 0): 7, ("orders", 1): 5}
        assert written.count(LOG_STARTS) <= 2
        monkeypatch.setattr(PosixDisk, "write_atomic", full)
        answer = await delete_records(running.broker, context, deletion(8))
        (result,) = answer.topics[0].partitions
        assert (result.error_code, result.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert not [steps for steps in deleted() if steps[2] == 8], "it has not happened"
        monkeypatch.setattr(PosixDisk, "write_atomic", write_atomic)
        await delete_records(running.broker, context, deletion(8))
        assert log_starts(tmp_path)["orders", 0] == 8
        await delete_records(running.broker, context, deletion(8))
        assert not running.broker.noted_starts

    def deleted() -> list[tuple[int, int, int]]:
        found = [vars(record) for record in caplog.records]
        fields = ("partition", "log_start_offset_before", "log_start_offset")
        return [
            tuple(record["fields"][name] for name in fields)
            for record in found
            if record.get("event") == "records_deleted"
        ]

    with caplog.at_level(logging.INFO):
        run(tmp_path, scenario, replica_high_watermark_checkpoint_interval_ms="3600000")
    assert sorted(deleted()) == [(0, 0, 4), (0, 4, 6), (0, 6, 7), (0, 7, 8), (1, 0, 5)]


def test_where_logs_begin_is_written_down_after_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomic = PosixDisk.write_atomic

    async def scenario(running: Running) -> None:
        loop, written = asyncio.get_running_loop(), asyncio.Event()

        def watched(self: PosixDisk, path: Path, data: Buffer) -> None:
            write_atomic(self, path, data)
            if path.name == LOG_STARTS:
                loop.call_soon_threadsafe(written.set)

        await running.create("orders")
        partition = running.partition("orders")
        old = running.clock.wall_ms() - 60_000
        partition.append(make_batch(5, timestamp=old), old)
        monkeypatch.setattr(PosixDisk, "write_atomic", watched)
        partition.log.roll(old)
        await written.wait()
        assert log_starts(tmp_path) == {("orders", 0): 5}

    run(
        tmp_path,
        scenario,
        replica_high_watermark_checkpoint_interval_ms="3600000",
        log_retention_ms="1000",
        log_retention_check_interval_ms="50",
    )


def test_internal_topics_are_as_durable_as_the_most_durable_topic(tmp_path: Path) -> None:
    """Otherwise a power failure could lose decisions about transactions but not their records."""
    internal = ("__consumer_offsets", "__transaction_state")

    def commits_durable(running: Running) -> list[bool]:
        return [running.partition(name).watermark.by_flush for name in internal]

    async def first(running: Running) -> None:
        await running.broker.topics.ensure_group_topic()
        await running.broker.topics.ensure_transaction_topic()
        await running.create("cheap")
        assert commits_durable(running) == [False, False]
        await running.create("payments")
        await running.configure(ResourceType.TOPIC, "payments", "durability", "fsync")
        assert commits_durable(running) == [True, True]
        assert not running.partition("cheap").watermark.by_flush

    async def second(running: Running) -> None:
        assert commits_durable(running) == [True, True], "after a start, too"
        await running.create("refunds")
        await running.configure(ResourceType.TOPIC, "refunds", "durability", "fsync")
        await running.delete("payments")
        assert commits_durable(running) == [True, True]
        await running.configure(ResourceType.TOPIC, "refunds", "durability", "page-cache")
        assert commits_durable(running) == [False, False]
        await running.configure(ResourceType.TOPIC, "cheap", "durability", "fsync")
        assert commits_durable(running) == [True, True]
        await running.delete("cheap")
        assert commits_durable(running) == [False, False]

    run(tmp_path, first)
    run(tmp_path, second)


def test_the_backlog_is_the_configured_one(tmp_path: Path) -> None:
    async def scenario(running: Running) -> None:
        assert running.net.backlogs == [17]

    run(tmp_path, scenario, socket_listen_backlog_size="17")


def test_a_start_that_fails_gives_the_folder_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def failing() -> None:
        running = Running(tmp_path / "data", {})
        monkeypatch.setattr("lakelog.storage.folder.directory.LogDirectory.load_logs", fail)
        with pytest.raises(StartError, match="Input/output error"):
            await running.server.start()
        running.tasks.close()

    async def nothing(running: Running) -> None:
        pass

    asyncio.run(failing())
    monkeypatch.undo()
    run(tmp_path, nothing)


def test_a_start_that_is_cancelled_leaves_the_folder_clean(tmp_path: Path) -> None:
    async def make(running: Running) -> None:
        await running.create("orders", 3)

    async def cancelled() -> None:
        running = Running(tmp_path / "data", {})
        reached = asyncio.Event()
        offload = running.tasks.offload

        def watched(lane: str, work: Callable[[], Any]) -> asyncio.Future[Any]:
            if lane == "load":
                reached.set()
            return offload(lane, work)

        running.tasks.offload = watched  # type: ignore[method-assign]
        starting = asyncio.ensure_future(running.server.start())
        await reached.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        running.tasks.close()

    async def look(running: Running) -> None:
        assert running.partition("orders", 2).leader_epoch >= 1

    clean = tmp_path / "data" / ".kafka_cleanshutdown"
    run(tmp_path, make)
    assert clean.exists()
    asyncio.run(cancelled())
    assert clean.exists()
    run(tmp_path, look)


def test_an_iteration_of_the_loop_answers_requests_before_parked_ones(tmp_path: Path) -> None:
    async def scenario(running: Running) -> None:
        connections = running.server._dispatcher.connections
        parts = [
            getattr(part, "__self__", None)
            for part in connections.iterations.loop_iterations._parts
        ]
        requests, parked = connections.iterations, running.broker.purgatory
        assert parts.index(requests) < parts.index(requests.sending) < parts.index(parked)

    run(tmp_path, scenario)
