"""`durability=fsync`: answers wait for the device, and many of them for the same sync."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.topics import TopicReference, plan_delete_topics
from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from lakelog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from lakelog.runtime.api import File
from lakelog.runtime.posix import PosixDisk
from lakelog.server.appends.acknowledgement import Appended, committed
from lakelog.server.upkeep import maintenance
from lakelog.wire.framing import decode_response, encode_request
from socketless_broker import FakeSocket, SocketlessBroker
from storage_kit import make_batch

VERSIONS: dict[type[Any], int] = {ProduceRequest: 13, FetchRequest: 16, ListOffsetsRequest: 8}
TOPIC = "orders"


class Admission:
    """Syncs of log files that begin while it is closed last until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Semaphore(0)
        self.syncs = 0
        self.error: OSError | None = None
        self.write_error: OSError | None = None

    def pass_through(self) -> None:
        self.syncs += 1
        self.begun.release()
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error


class GatedFile:
    def __init__(self, file: File, admission: Admission) -> None:
        self._file = file
        self._gate = admission

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write_at(self, offset: int, *data: Any) -> None:
        if self._gate.write_error is not None:
            raise self._gate.write_error
        self._file.write_at(offset, *data)

    def sync(self) -> None:
        if TOPIC in str(self._file.path) and self._file.path.suffix == ".log":
            self._gate.pass_through()
        self._file.sync()


class GatedDisk(PosixDisk):
    def __init__(self, admission: Admission) -> None:
        super().__init__()
        self._gate = admission

    def open(self, path: Path, *, create: bool = False) -> Any:
        return GatedFile(super().open(path, create=create), self._gate)


class GatedBroker:
    """A broker with one topic, and clients that ask it one thing at a time."""

    def __init__(self, data: Path, **settings: str) -> None:
        self.admission = Admission()
        settings = {"log_durability": "fsync", **settings}
        self.broker = SocketlessBroker(data, GatedDisk(self.admission), settings=settings)

    async def start(self) -> None:
        await self.broker.start()
        assert not await self.broker.server.broker.topics.ensure([TOPIC])
        self.topic_id = self.broker.server.broker.image.topic_ids[TOPIC]

    def client(self) -> Client:
        self.broker.connect()
        return Client(self, self.broker.socket)

    @property
    def partition(self) -> Any:
        partition = self.broker.server.broker.partitions.get(TOPIC, 0)
        assert partition is not None
        return partition

    async def until_syncing(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.admission.begun.acquire)


class Client:
    def __init__(self, gated: GatedBroker, socket: FakeSocket) -> None:
        self._gated = gated
        self._socket = socket
        self._next_id = 0

    def send(self, message: Any) -> None:
        self._next_id += 1
        api = api_for(type(message))
        parts = encode_request(api, VERSIONS[type(message)], self._next_id, "c", message)
        self._socket.incoming += b"".join(parts)
        assert self._socket.readable is not None
        self._socket.readable()

    def produce(self, *, acks: int = -1, timeout_ms: int = 60_000) -> None:
        entry = PartitionProduceData(index=0, records=bytes(make_batch()))
        topic = TopicProduceData(topic_id=self._gated.topic_id, partition_data=[entry])
        self.send(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic]))

    def answers(self) -> int:
        """How many have come and were not looked at."""
        count, position = 0, 0
        while position < len(self._socket.sent):
            position += 4 + int.from_bytes(self._socket.sent[position : position + 4], "big")
            count += 1
        return count

    async def answered(self, count: int = 1) -> None:
        """Wait for so many responses that the test has not read."""
        while self.answers() < count:
            self._socket.was_sent.clear()
            await self._socket.was_sent.wait()

    def answer(self, kind: type[Any]) -> Any:
        size = int.from_bytes(self._socket.sent[:4], "big")
        frame = bytes(self._socket.sent[4 : 4 + size])
        del self._socket.sent[: 4 + size]
        return decode_response(api_for(kind), VERSIONS[kind], frame)[1]

    def produced(self) -> Any:
        return self.answer(ProduceRequest).responses[0].partition_responses[0]

    def fetch(self, offset: int) -> Any:
        entry = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic_id=self._gated.topic_id, partitions=[entry])
        self.send(FetchRequest(max_wait_ms=0, session_epoch=-1, topics=[topic]))
        return self.answer(FetchRequest).responses[0].partitions[0]

    def end_offset(self) -> int:
        entry = ListOffsetsPartition(partition_index=0, timestamp=-1)
        self.send(ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[entry])]))
        response = self.answer(ListOffsetsRequest)
        return int(response.topics[0].partitions[0].offset)


def run(folder: Path, scenario: Callable[[GatedBroker], Awaitable[None]], **settings: str) -> None:
    async def whole() -> None:
        gated = GatedBroker(folder / "data", **settings)
        await gated.start()
        try:
            await scenario(gated)
        finally:
            gated.admission.open.set()
            await gated.broker.stop()

    asyncio.run(asyncio.wait_for(whole(), 120))


def test_an_answer_waits_for_the_device(tmp_path: Path) -> None:
    async def scenario(gated: GatedBroker) -> None:
        client, reader = gated.client(), gated.client()
        gated.admission.open.clear()
        client.produce(acks=1)
        await gated.until_syncing()
        assert client.answers() == 0
        assert not reader.fetch(0).records, "records that may be lost are not readable"
        assert reader.end_offset() == 0
        gated.admission.open.set()
        await client.answered()
        assert client.produced().error_code == ErrorCode.NONE
        assert reader.fetch(0).records
        assert reader.end_offset() == 1

    run(tmp_path, scenario)


def test_no_request_waits_in_the_page_cache_mode(tmp_path: Path) -> None:
    async def scenario(gated: GatedBroker) -> None:
        client = gated.client()
        for _ in range(5):
            client.produce()
            assert client.produced().error_code == ErrorCode.NONE
        assert gated.admission.syncs == 0

    run(tmp_path, scenario, log_durability="page-cache")


@pytest.mark.parametrize("connections", [1, 16, 64])
def test_many_answers_share_a_sync(tmp_path: Path, connections: int) -> None:
    """With 64 requests in flight a sync acknowledges more than ten of them."""
    in_flight, rounds = 64, 10

    async def scenario(gated: GatedBroker) -> None:
        clients = [gated.client() for _ in range(connections)]
        left = dict.fromkeys(clients, in_flight // connections * rounds)
        for client in clients:
            for _ in range(in_flight // connections):
                client.produce()
        while any(left.values()):
            await asyncio.sleep(0)
            for client in clients:
                for _ in range(client.answers()):
                    assert client.produced().error_code == ErrorCode.NONE
                    left[client] -= 1
                    if left[client] >= in_flight // connections:
                        client.produce()
        assert gated.partition.watermark.offset == in_flight * rounds
        assert gated.admission.syncs / (in_flight * rounds) < 0.1

    run(tmp_path, scenario)


def test_records_not_durable_at_the_deadline_time_out(tmp_path: Path) -> None:
    async def scenario(gated: GatedBroker) -> None:
        client = gated.client()
        gated.admission.open.clear()
        client.produce(timeout_ms=0)
        await client.answered()
        assert client.produced().error_code == ErrorCode.REQUEST_TIMED_OUT
        client.produce()
        gated.admission.open.set()
        await client.answered()
        assert client.produced().base_offset == 1

    run(tmp_path, scenario)


def test_a_device_that_fails_is_no_acknowledgement(tmp_path: Path) -> None:
    async def scenario(gated: GatedBroker) -> None:
        client = gated.client()
        gated.admission.error = OSError(errno.EIO, "a bad device")
        client.produce()
        client.produce()
        await client.answered(2)
        for _ in range(2):
            assert client.produced().error_code == ErrorCode.KAFKA_STORAGE_ERROR
        client.produce()
        assert client.produced().error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert gated.partition.watermark.offset == 0

    run(tmp_path, scenario)


def test_a_deleted_topic_answers_waiting_requests(tmp_path: Path) -> None:
    async def scenario(gated: GatedBroker) -> None:
        client = gated.client()
        gated.admission.open.clear()
        client.produce()
        await gated.until_syncing()
        broker = gated.broker.server.broker
        await broker.metadata.submit(
            lambda image: plan_delete_topics(image, [TopicReference(TOPIC)])
        )
        await client.answered()
        assert client.produced().error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_the_mode_may_change_while_it_runs(tmp_path: Path) -> None:
    async def scenario(gated: GatedBroker) -> None:
        client = gated.client()
        client.produce()
        assert client.produced().base_offset == 0
        gated.admission.open.clear()
        partition = gated.partition
        partition.use_config(partition.log.config._replace(durability="fsync"))
        client.produce()
        await gated.until_syncing()
        assert client.answers() == 0
        assert partition.watermark.offset == 1, "it never goes back"
        partition.use_config(partition.log.config._replace(durability="page-cache"))
        assert client.produced().base_offset == 1, "there is nothing to wait for any more"
        assert partition.watermark.offset == 2

    run(tmp_path, scenario, log_durability="page-cache")


def test_a_failing_append_answers_requests_that_wait_for_a_flush(tmp_path: Path) -> None:
    async def scenario(gated: GatedBroker) -> None:
        first, second = gated.client(), gated.client()
        broker, tasks = gated.broker.server.broker, gated.broker.tasks
        gated.admission.open.clear()
        first.produce()
        waiting = asyncio.ensure_future(
            committed(
                Appended(gated.partition, 1, gated.partition.leader_epoch), broker.purgatory, tasks
            )
        )
        await gated.until_syncing()
        gated.admission.write_error = OSError(errno.EIO, "a bad device")
        second.produce()
        for client in (first, second):
            assert client.produced().error_code == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError) as error:
            await waiting
        assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        gated.admission.write_error = None  # the broker is stopped

    run(tmp_path, scenario)


def test_an_answer_that_cannot_be_made_ends_its_connection_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(gated: GatedBroker) -> None:
        first, connections = gated.client(), [gated.broker.connection]
        second = gated.client()
        connections.append(gated.broker.connection)
        gated.admission.open.clear()
        for client in (first, second):
            client.produce()
        await gated.until_syncing()
        check, is_broken = Appended.check, iter([True])

        def broken(self: Appended) -> None:
            if next(is_broken, False):
                raise RuntimeError("a bug")
            check(self)

        monkeypatch.setattr(Appended, "check", broken)
        gated.admission.open.set()
        await second.answered()
        assert second.produced().error_code == ErrorCode.NONE
        assert first.answers() == 0
        assert "a bug" in caplog.text
        assert [connection.closed for connection in connections] == [True, False]

    run(tmp_path, scenario)


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_FLUSH_RETRY_S", 0.01)

    async def scenario(gated: GatedBroker) -> None:
        client = gated.client()
        log = gated.partition.log
        begin = type(log).begin_flush
        refusals = iter([OSError(errno.ENOSPC, "full"), OSError(errno.EMFILE, "too many")])

        def begin_flush(self: Any, **options: Any) -> Any:
            refusal = next(refusals, None)
            if refusal is not None:
                raise refusal
            return begin(self, **options)

        monkeypatch.setattr(type(log), "begin_flush", begin_flush)
        client.produce()
        await client.answered()
        assert client.produced().error_code == ErrorCode.NONE

    run(tmp_path, scenario)


def test_no_request_waits_beyond_the_stop_of_the_broker(tmp_path: Path) -> None:
    async def scenario(gated: GatedBroker) -> None:
        client = gated.client()
        gated.admission.open.clear()
        client.produce()
        await gated.until_syncing()
        client.produce()
        broker, tasks = gated.broker.server.broker, gated.broker.tasks
        waiting = asyncio.ensure_future(
            committed(
                Appended(gated.partition, 2, gated.partition.leader_epoch), broker.purgatory, tasks
            )
        )
        await asyncio.sleep(0)
        gated.admission.open.set()
        await gated.broker.server.stop()
        await waiting

    async def whole() -> None:
        gated = GatedBroker(tmp_path / "data")
        await gated.start()
        await scenario(gated)
        gated.broker.tasks.close()

    asyncio.run(asyncio.wait_for(whole(), 120))


def test_a_log_that_cannot_be_made_durable_keeps_no_other_from_starting(tmp_path: Path) -> None:
    async def whole() -> None:
        gated = GatedBroker(tmp_path / "data", log_durability="page-cache")
        await gated.start()
        assert not await gated.broker.server.broker.topics.ensure(["others"])
        gated.client().produce()
        gated.broker.server._folder.directory.close(clean=False)
        gated.broker.server._listeners._acceptors.clear()
        await gated.broker.server._control.metadata.close()
        gated.broker.tasks.close()

        again = GatedBroker(tmp_path / "data")
        again.admission.error = OSError(errno.EIO, "a bad device")
        await again.broker.start()
        partitions = again.broker.server.broker.partitions
        assert partitions.leader("others", 0).serves
        with pytest.raises(KafkaError) as error:
            partitions.leader(TOPIC, 0)
        assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        await again.broker.stop()

    asyncio.run(asyncio.wait_for(whole(), 120))
