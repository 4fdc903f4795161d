"""A full disk: a broker that was killed starts again, and what frees space is done for good."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from doubles.disk import MemoryDisk
from doubles.sqlite_metadata import SimulatedMetadata
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.topics import NewTopic, plan_create_topics
from lakelog.metadata.store.api import MetadataStore
from lakelog.protocol.api import api_for
from lakelog.protocol.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalResource,
)
from lakelog.protocol.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lakelog.protocol.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from lakelog.replica.partition import Partition
from lakelog.runtime.aio import AsyncioTasks
from lakelog.server.handlers.configs import incremental_alter_configs
from lakelog.server.handlers.topics import delete_records, delete_topics
from lakelog.server.options import StartError
from lakelog.server.requests.context import Context
from lakelog.storage.folder.space import RESERVE
from lakelog.wire.framing import decode_response
from lakelog.wire.schema import Message
from socketless_broker import SocketlessBroker, request_frame
from storage_kit import DATA, NOW, ManualClock, make_batch
from waiting import until

T = TypeVar("T")
SETTINGS = {
    "log_retention_bytes": "100000",
    "log_segment_delete_delay_ms": "0",
    "log_retention_check_interval_ms": "3600000",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
}


class InPlace(AsyncioTasks):
    """SQLite stays in one thread."""

    def offload(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:
        done = asyncio.get_running_loop().create_future()
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - it is the caller's
            done.set_exception(error)
        return done


def broker_on(disk: MemoryDisk, reserve: int) -> SocketlessBroker:
    def metadata(_: AsyncioTasks) -> MetadataStore:
        store = SimulatedMetadata(disk, DATA / "metadata.db")
        return store.handle(InPlace(asyncio.get_running_loop()), lambda: True)

    size = {"lakelog_disk_reserve_bytes": str(reserve)}
    return SocketlessBroker(DATA, disk, metadata=metadata, settings=SETTINGS | size)


async def create(broker: SocketlessBroker, segment_bytes: int) -> Partition:
    server = broker.server
    (created,) = await server.broker.metadata.submit(
        lambda image: plan_create_topics(
            image,
            [NewTopic("t", 1, 1, configs=[("internal.segment.bytes", str(segment_bytes))])],
            broker=server.broker.config,
            random=server.broker.random,
        )
    )
    assert not created.error, created
    return server.broker.partitions.leader("t", 0)


async def fill(broker: SocketlessBroker, disk: MemoryDisk) -> None:
    partition = await create(broker, segment_bytes=50_000)
    disk.capacity = disk.used + 1_000_000
    with pytest.raises(KafkaError, match="No space left"):
        while True:
            partition.append(make_batch(1, size=10_000), NOW)
    disk.capacity = disk.used


def partition_of(broker: SocketlessBroker) -> Partition:
    return broker.server.broker.partitions.leader("t", 0)


@pytest.mark.parametrize("reserve", [1 << 20, 0])
def test_a_start_on_a_full_disk_needs_the_reserve(reserve: int) -> None:
    async def main() -> None:
        disk = MemoryDisk(ManualClock(), capacity=64 << 20)
        first = broker_on(disk, reserve)
        await first.start()
        first.server._folder.reserve.renew()
        await fill(first, disk)
        disk.kill()
        first.tasks.close()
        second = broker_on(disk, reserve)
        if not reserve:
            with pytest.raises(StartError, match=r"full|space"):
                await second.start()
            second.tasks.close()
            return
        await second.start()
        assert disk.size(DATA / RESERVE) == 0
        with pytest.raises(KafkaError, match="No space left"):
            partition_of(second).append(make_batch(1, size=10), NOW)
        for _ in range(2):
            second.server._maintenance._retain()
        assert partition_of(second).log.size <= 150_000
        disk.capacity = 64 << 20
        look_again(second)
        assert disk.size(DATA / RESERVE) == reserve
        partition_of(second).append(make_batch(1, size=10_000), NOW)
        await second.stop()

    asyncio.run(asyncio.wait_for(main(), 120))


def look_again(broker: SocketlessBroker) -> None:
    """Finds that the disk is not full any more."""
    shortages = broker.server._folder.shortages
    shortages._probe()
    shortages._on_probed(None)
    assert shortages.reasons == {}


Operation = Callable[[SocketlessBroker], Awaitable[object]]
IsDone = Callable[[SocketlessBroker], bool]


def _context(broker: SocketlessBroker, request: Message, version: int) -> Context:
    return Context(broker.connection, api_for(type(request)), version, 1, "client")


async def delete_topic(broker: SocketlessBroker) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
    context = _context(broker, request, 6)
    answer = await delete_topics(broker.server.broker, context, request)
    assert [entry.error_code for entry in answer.responses] == [0]


def has_no_topic(broker: SocketlessBroker) -> bool:
    return broker.server.broker.image.topic("t") is None


async def delete_half(broker: SocketlessBroker) -> None:
    wanted = DeleteRecordsPartition(partition_index=0, offset=50)
    topic = DeleteRecordsTopic(name="t", partitions=[wanted])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
    context = _context(broker, request, 2)
    answer = await delete_records(broker.server.broker, context, request)
    assert answer.topics[0].partitions[0].error_code == 0


def starts_later(broker: SocketlessBroker) -> bool:
    return partition_of(broker).log.log_start_offset >= 50


async def shorten_retention(broker: SocketlessBroker) -> None:
    change = IncrementalConfig(name="retention.bytes", config_operation=0, value="20000")
    resource = IncrementalResource(resource_type=2, resource_name="t", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    context = _context(broker, request, 1)
    answer = await incremental_alter_configs(broker.server.broker, context, request)
    assert [entry.error_code for entry in answer.responses] == [0]


def keeps_less(broker: SocketlessBroker) -> bool:
    return partition_of(broker).log.config.retention_bytes == 20_000


OPERATIONS = {
    "topic": (delete_topic, has_no_topic),
    "records": (delete_half, starts_later),
    "retention": (shorten_retention, keeps_less),
}


@pytest.mark.parametrize("death", ["kill", "power"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_frees_space_is_done_on_a_full_disk_and_stays_done(operation: str, death: str) -> None:
    do, is_done = OPERATIONS[operation]

    async def main() -> None:
        disk = MemoryDisk(ManualClock(), capacity=64 << 20)
        first = broker_on(disk, 1 << 20)
        await first.start()
        first.server._folder.reserve.renew()
        await fill(first, disk)
        first.server._folder.shortages.stop()
        await do(first)
        assert is_done(first)
        assert first.server._folder.reserve.is_spent
        assert disk.capacity is not None
        assert disk.used < disk.capacity - 100_000
        with pytest.raises(KafkaError, match="is full"):
            await first.server.broker.producer_ids.next()
        await first.server._maintenance.stop()  # no thread changes the copied files
        left = disk.copy_after_kill() if death == "kill" else disk.copy_after_crash()
        second = broker_on(left, 1 << 20)
        await second.start()
        assert is_done(second)
        assert second.server._folder.reserve.is_spent
        second.server._maintenance._purge()
        for _ in range(2):
            second.server._maintenance._retain()
        left.capacity = left.used + (3 << 20)
        look_again(second)
        await second.server.broker.producer_ids.next()
        await second.stop()
        first.tasks.close()

    asyncio.run(asyncio.wait_for(main(), 120))


def test_the_only_segment_of_a_log_can_go() -> None:
    """Another is begun in the space of the reserve."""

    async def main() -> None:
        disk = MemoryDisk(ManualClock(), capacity=64 << 20)
        broker = broker_on(disk, 1 << 20)
        await broker.start()
        broker.server._folder.reserve.renew()
        partition = await create(broker, segment_bytes=1 << 20)
        partition.append(make_batch(1, size=10_000), NOW)
        partition.delete_records(1)
        disk.fail("name", errno.ENOSPC, suffix="0001.log")
        broker.server._maintenance._retain()
        await until(lambda: partition.log.size == 0)
        assert broker.server._folder.reserve.is_spent
        assert partition.is_online
        await broker.stop()

    asyncio.run(asyncio.wait_for(main(), 120))


async def produced(broker: SocketlessBroker, sequence: int) -> ErrorCode:
    """Append a batch of one producer; return the code of the response."""
    entry = PartitionProduceData(index=0, records=make_batch(producer=(7, 0, sequence)))
    topic = TopicProduceData(name="t", partition_data=[entry])
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
    answer = broker.ask(request_frame(request, 9))
    while not answer:
        await broker.socket.was_sent.wait()
        broker.socket.was_sent.clear()
        answer = broker.take_answer()
    _, response = decode_response(api_for(ProduceRequest), 9, answer[4:])
    assert isinstance(response, ProduceResponse)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def test_batches_wait_for_a_batch_whose_indexes_found_no_descriptor() -> None:
    async def main() -> None:
        disk = MemoryDisk(ManualClock())
        first = broker_on(disk, 0)
        await first.start()
        partition = await create(first, segment_bytes=1 << 20)
        for number in range(100):
            partition.append(make_batch(10, size=1000, producer=(7, 0, 10 * number)), NOW)
        await first.stop()
        broker = broker_on(disk, 0)
        await broker.start()
        disk.fail("read", errno.EMFILE, suffix=".index", times=2)
        assert await produced(broker, 1000) is ErrorCode.KAFKA_STORAGE_ERROR
        assert await produced(broker, 1001) is ErrorCode.KAFKA_STORAGE_ERROR
        assert [await produced(broker, 1000 + each) for each in (0, 1)] == [ErrorCode.NONE] * 2
        await broker.stop()

    asyncio.run(asyncio.wait_for(main(), 120))
