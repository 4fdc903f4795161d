"""Batches whose records take long to look into: others are served meanwhile, and order is kept.

What long computations leave of the event loop: slices are counted in virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from lakelog.protocol.produce import ProduceRequest
from lakelog.records.batch import read_header
from lakelog.records.compression import Codec, compress
from lakelog.records.crc import crc32c
from lakelog.server.appends.slow_batches import SlowBatches, TimeSlices
from lakelog.storage.reading.timestamps import TimestampOffset
from lakelog.storage.validation import WALKED_MAX
from lakelog.wire.framing import decode_response
from poison import sealed
from simulator.engine.loop import SimulatedLoop
from socketless_broker import FakeSocket, SocketlessBroker, request_frame
from storage_kit import NOW, ManualClock, make_batch
from wire_client import PRODUCE_VERSION, produce_request

RECORDS = 30_000
PRODUCER = 7
LIST_OFFSETS_VERSION = 7


def _responses(sent: bytes) -> list[tuple[int, int, int]]:
    """Correlation id, error and base offset of each whole response."""
    found = []
    while sent:
        size = int.from_bytes(sent[:4], "big")
        number, response = decode_response(
            api_for(ProduceRequest), PRODUCE_VERSION, sent[4 : 4 + size]
        )
        result = response.responses[0].partition_responses[0]
        found.append((number, result.error_code, result.base_offset))
        sent = sent[4 + size :]
    return found


def _produce(number: int, topic: str, batch: bytes | bytearray) -> bytes:
    return request_frame(produce_request(topic, bytes(batch)), PRODUCE_VERSION, number)


async def _answers(sock: FakeSocket, count: int) -> list[tuple[int, int, int]]:
    """Wait for so many responses; return all that were sent."""
    while len(found := _responses(bytes(sock.sent))) < count:
        sock.was_sent.clear()
        await sock.was_sent.wait()
    return found


def _run(data: Path, scenario: Callable[[SocketlessBroker], Any], **settings: str) -> None:
    async def run() -> None:
        broker = SocketlessBroker(data, settings=settings)
        await broker.start()
        await scenario(broker)
        await broker.stop()

    asyncio.run(run())


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_others_are_served_while_a_compacted_topic_takes_a_slow_batch(
    tmp_path: Path, codec: Codec
) -> None:
    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("slow", {"cleanup.policy": "compact"})
        await broker.create_topic("quick")
        slow = make_batch(RECORDS, size=5, codec=codec, producer=(PRODUCER, 0, 0))
        more = make_batch(10, producer=(PRODUCER, 0, RECORDS))
        first, good = broker.connect(), broker.connect()
        first.deliver(_produce(1, "slow", slow) + _produce(2, "slow", more))
        assert not first.sent
        for number in range(10):
            good.deliver(_produce(number, "quick", make_batch()))
            await asyncio.sleep(0)
        assert _responses(bytes(good.sent)) == [(number, 0, number) for number in range(10)]
        assert not first.sent, "it took no longer than ten iterations of the loop"
        assert await _answers(first, 2) == [(1, 0, 0), (2, 0, RECORDS)]
        first.deliver(_produce(3, "slow", slow))
        assert (await _answers(first, 3))[2] == (3, 0, 0), "a retry is known again"

    _run(tmp_path, scenario)


def test_a_small_walk_does_not_wait_for_the_end_of_large_ones(tmp_path: Path) -> None:
    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("slow", {"cleanup.policy": "compact"})
        await broker.create_topic("quick")
        huge = make_batch(60_000, size=5, codec=Codec.ZSTD)
        holders = [broker.connect() for _ in range(3)]
        for sock in holders:
            sock.deliver(_produce(1, "slow", huge))
        first = broker.connect()
        first.deliver(_produce(1, "quick", make_batch(1_500)))
        assert await _answers(first, 1) == [(1, 0, 0)]
        assert not any(sock.sent for sock in holders)
        for sock in holders:
            await _answers(sock, 1)

    _run(tmp_path, scenario)


def test_a_slow_batch_is_rejected_with_its_error(tmp_path: Path) -> None:
    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("slow", {"cleanup.policy": "compact"})
        sock = broker.connect()
        too_many = sealed(compress(Codec.GZIP, bytes(7 * WALKED_MAX + 7)), 1, WALKED_MAX + 1)
        cut = make_batch(RECORDS, size=5)
        del cut[-5:]
        sock.deliver(_produce(1, "slow", _sealed(cut)))
        sock.deliver(_produce(2, "slow", too_many))
        answers = await _answers(sock, 2)
        assert [code for _, code, _ in answers] == [
            ErrorCode.INVALID_RECORD,
            ErrorCode.MESSAGE_TOO_LARGE,
        ]

    _run(tmp_path, scenario)


def test_a_large_batch_is_given_the_codec_of_its_topic(tmp_path: Path) -> None:
    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("packed", {"compression.type": "gzip"})
        sock = broker.connect()
        batch = make_batch(RECORDS, size=100, codec=Codec.ZSTD)
        sock.deliver(_produce(1, "packed", batch) + _produce(2, "packed", make_batch()))
        assert await _answers(sock, 2) == [(1, 0, 0), (2, 0, RECORDS)]
        partition = broker.server.broker.partitions.leader("packed", 0)
        found = partition.read(0, 1 << 20, min_one=True)
        assert found is not None
        stored = found.file.read_at(found.position, 61)
        assert read_header(stored).codec == Codec.GZIP
        found.release()

    _run(tmp_path, scenario)


@pytest.mark.parametrize("timestamp", [NOW + RECORDS - 1, -3], ids=["time", "greatest"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_others_are_served_while_a_time_is_looked_for(
    tmp_path: Path, codec: Codec, timestamp: int
) -> None:
    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("slow")
        await broker.create_topic("quick")
        batch = make_batch(RECORDS, size=20, codec=codec)
        asking, good = broker.connect(), broker.connect()
        asking.deliver(_produce(1, "slow", batch))
        await _answers(asking, 1)
        asking.sent.clear()
        entry = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name="slow", partitions=[entry])
        asking.deliver(request_frame(ListOffsetsRequest(topics=[topic]), LIST_OFFSETS_VERSION, 2))
        for number in range(10):
            good.deliver(_produce(number, "quick", make_batch()))
            await asyncio.sleep(0)
        assert len(_responses(bytes(good.sent))) == 10
        assert not asking.sent, "it took no longer than ten iterations of the loop"
        broker.server.broker.partitions.leader("slow", 0).log.roll(NOW)
        asking.was_sent.clear()
        await asking.was_sent.wait()
        _, response = decode_response(
            api_for(ListOffsetsRequest), LIST_OFFSETS_VERSION, bytes(asking.sent[4:])
        )
        assert response.topics[0].partitions[0].offset == RECORDS - 1

    _run(tmp_path, scenario)


def test_slow_batches_take_of_what_all_requests_may_take(tmp_path: Path) -> None:
    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("slow", {"cleanup.policy": "compact"})
        memory = broker.dispatcher.connections.memory
        batch = make_batch(6_000, size=100)
        senders = [broker.connect() for _ in range(5)]
        for number, sock in enumerate(senders):
            sock.deliver(_produce(number, "slow", batch))
        received = memory.share.used
        await asyncio.sleep(0)
        assert memory.share.used == received + 5 * len(batch)
        for sock in senders:
            await _answers(sock, 1)
        assert memory.share.used == received

    _run(tmp_path, scenario)


def test_peers_that_go_leave_no_more_slow_batches_behind_than_requests_may_take(
    tmp_path: Path,
) -> None:
    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("slow", {"cleanup.policy": "compact"})
        memory = broker.dispatcher.connections.memory
        batch = make_batch(6_000, size=100)
        for number in range(12):
            broker.connect().deliver(_produce(number, "slow", batch))
            await asyncio.sleep(0)
            broker.connection.close()
            await asyncio.sleep(0)
            assert memory.share.used <= memory.share.bytes_max
        sock = broker.connect()
        sock.deliver(_produce(99, "slow", batch))
        _, code, base = (await _answers(sock, 1))[0]
        fitting = memory.share.bytes_max // len(batch)
        assert code == 0
        assert base >= fitting * 6_000, "batches within the limit are still appended"
        broker.connection.close()
        await asyncio.sleep(0)
        assert memory.share.used == 0
        assert broker.dispatcher.waiting.total == 0

    _run(tmp_path, scenario, queued_max_request_bytes=str(4 << 20))


@pytest.mark.parametrize("before", [{"cleanup.policy": "compact"}, {"compression.type": "gzip"}])
def test_a_slow_batch_is_looked_into_again_if_the_settings_change_meanwhile(
    tmp_path: Path, before: dict[str, str]
) -> None:
    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("slow", before)
        partition = broker.server.broker.partitions.leader("slow", 0)
        sock = broker.connect()
        batch = make_batch(RECORDS, size=100, codec=Codec.ZSTD)
        sock.deliver(_produce(1, "slow", batch))
        await asyncio.sleep(0)
        partition.use_config(partition.log.config._replace(compression_type="lz4"))
        assert await _answers(sock, 1) == [(1, 0, 0)]
        found = partition.read(0, 1 << 20, min_one=True)
        assert found is not None
        assert read_header(found.file.read_at(found.position, 61)).codec == Codec.LZ4
        found.release()

    _run(tmp_path, scenario)


def _sealed(batch: bytearray) -> bytearray:
    """With a length and a checksum that fit."""
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


SLICE_MS = 3
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))


class BusyClock(ManualClock):
    """Every other look at it is at the end of a slice, which took some milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        self.now_ms += SLICE_MS * (self.looks % 2 == 0)
        return super().monotonic()

    @property
    def busy_s(self) -> float:
        return self.looks // 2 * SLICE_MS / 1000


class IdleThreads:
    def offload(self, lane: str, work: Callable[[], Any]) -> asyncio.Future[Any]:
        done = asyncio.get_running_loop().create_future()
        done.set_result(work())
        return done


class StuckThreads(IdleThreads):
    """Threads that do not finish work of large batches."""

    def __init__(self) -> None:
        self.is_stuck = True
        self.stuck = 0

    def offload(self, lane: str, work: Callable[[], Any]) -> asyncio.Future[Any]:
        if not self.is_stuck:
            return super().offload(lane, work)
        self.stuck += 1
        return asyncio.get_running_loop().create_future()


@pytest.fixture
def clock() -> BusyClock:
    return BusyClock()


def _elapsed_s(main: Coroutine[Any, Any, object]) -> float:
    loop = SimulatedLoop(random.Random(1))
    began = loop.time()
    try:
        loop.run_until_complete(main)
        return loop.time() - began
    finally:
        loop.close()


def _slow_batches(clock: BusyClock, threads: IdleThreads | None = None) -> SlowBatches:
    tasks: Any = threads or IdleThreads()
    return SlowBatches(tasks, clock)


def test_walks_leave_half_of_the_loop_however_many_there_are(clock: BusyClock) -> None:
    slow = _slow_batches(clock)

    async def walk() -> None:
        batches = [slow.walked(make_batch(9_000), COMPACTED, NOW, sampled=False) for _ in range(4)]
        for walked in await asyncio.gather(*batches):
            assert read_header(walked).records_count == 9_000

    idle_s = _elapsed_s(walk())
    assert clock.looks // 2 >= 4 * 9, "a slice is of a thousand records"
    assert idle_s >= clock.busy_s


def test_a_small_batch_does_not_wait_for_large_ones(clock: BusyClock) -> None:
    """Two large batches take at most 128 MiB; with one limit for all, they delay every producer."""
    threads = StuckThreads()
    slow = _slow_batches(clock, threads)
    config = LogConfig(cleanup_policy=frozenset({"compact"}), max_message_bytes=8 << 20)

    async def walk() -> None:
        batch = make_batch(size=2 << 20)
        large = [
            asyncio.create_task(slow.walked(batch, config, NOW, sampled=False)) for _ in range(3)
        ]
        await asyncio.sleep(0)
        assert threads.stuck == 2
        threads.is_stuck = False
        walked = await slow.walked(make_batch(9), config, NOW, sampled=False)
        assert read_header(walked).records_count == 9
        assert not any(task.done() for task in large)
        for task in large:
            task.cancel()
        await asyncio.gather(*large, return_exceptions=True)

    _elapsed_s(walk())


def test_searches_leave_half_of_the_loop(clock: BusyClock) -> None:
    slow = _slow_batches(clock)
    answer = TimestampOffset(NOW, 1, 2)

    async def look() -> None:
        def search() -> Any:
            for _ in range(20):
                yield None
            assert (yield lambda: b"records") == b"records"
            return answer

        assert await slow.find(search()) == answer

    idle_s = _elapsed_s(look())
    assert clock.looks // 2 == 21
    assert idle_s >= clock.busy_s


def test_a_slice_that_fails_is_paid_for_and_lets_others_go_on(clock: BusyClock) -> None:
    share = TimeSlices(clock)

    async def run() -> None:
        def fail() -> None:
            raise ValueError("planted")

        with pytest.raises(ValueError, match="planted"):
            await share.run(fail)
        assert await share.run(lambda: 7) == 7

    assert _elapsed_s(run()) >= clock.busy_s == 2 * SLICE_MS / 1000


def test_short_slices_are_slept_for_together() -> None:
    """A sleep after each slice would take a millisecond, on an otherwise idle loop."""
    clock = ManualClock(0)
    pauses = []

    def work() -> None:
        clock.now_ms += 0.25  # type: ignore[assignment]

    async def run() -> None:
        share = TimeSlices(clock)
        loop = asyncio.get_running_loop()
        for _ in range(8):
            began = loop.time()
            await share.run(work)
            pauses.append(loop.time() - began >= 0.001)

    _elapsed_s(run())
    assert pauses == [False, False, False, True] * 2
