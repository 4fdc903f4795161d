"""The loop uses indexes that threads have loaded, compared with the log and rebuilt."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from counted_work import lines_run
from lakelog.base.errors import ErrorCode
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
from lakelog.protocol.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from lakelog.records.batch import iter_batches
from lakelog.replica.partition import Partition
from lakelog.server.coordinators.partition_log import LocalPartitionLogs
from lakelog.storage.files import INDEX, TIME_INDEX, TXN_INDEX
from lakelog.storage.reading import aborted
from lakelog.storage.segments.index_keeper import IndexKeeper
from lakelog.storage.segments.txn_index import encode_aborted
from lakelog.wire.framing import decode_response, encode_request
from lakelog.wire.schema import Struct
from socketless_broker import SocketlessBroker
from storage_kit import NOW, append, append_in_transaction, append_marker, make_batch

BATCHES = 60
PER_BATCH = 5
END = BATCHES * PER_BATCH
OPEN_FILES_MAX = 64
"""Of a socketless broker."""
VERSIONS: dict[type[Struct], int] = {
    FetchRequest: 12,
    ListOffsetsRequest: 7,
    ProduceRequest: 9,
    WriteTxnMarkersRequest: 1,
}
SETTINGS = {
    "num_partitions": "1",
    "log_index_interval_bytes": "300",
    "log_retention_ms": "-1",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
}

Fill = Callable[[Partition], None]
Scenario = Callable[[SocketlessBroker, Partition], Awaitable[None]]


def damages() -> dict[str, Callable[[bytes], bytes]]:
    """Kinds of damage to an index file of several entries."""

    def flipped(at: int, bit: int) -> Callable[[bytes], bytes]:
        return lambda data: data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]

    return {
        "an early entry": lambda data: flipped(7, 4)(data),
        "a middle entry": lambda data: flipped(len(data) // 2 + 7, 1)(data),
        "the last entry": lambda data: flipped(len(data) - 1, 1)(data),
        "empty": lambda data: b"",
        "half": lambda data: data[: len(data) // 24 * 12],
        "noise": lambda data: bytes(7 * number % 256 for number in range(len(data))),
    }


each_damage = pytest.mark.parametrize("how", damages())


def fill(partition: Partition) -> None:
    """Rising times; two segments."""
    for number in range(BATCHES):
        if number == BATCHES // 2:
            partition.log.roll(NOW)
        append(partition.log, make_batch(PER_BATCH, timestamp=NOW + 10 * number))


def fill_two(partition: Partition) -> None:
    for _ in range(2):
        partition.log.roll(NOW)
        append(partition.log, make_batch())


def fill_active(partition: Partition) -> None:
    for number in range(BATCHES):
        append(partition.log, make_batch(PER_BATCH, timestamp=NOW + 10 * number))


def fill_aborted(partition: Partition, *, rolls: bool = True) -> None:
    """Every other batch is an aborted transaction of one record; its marker follows."""
    log = partition.log
    for number in range(BATCHES):
        append_in_transaction(log, (1, 0, number))
        append_marker(log, 1, 0, commit=number % 2 == 0)
    if rolls:
        log.roll(NOW)
        append(log, make_batch())


def fill_aborted_active(partition: Partition) -> None:
    fill_aborted(partition, rolls=False)


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The work on indexes that the thread of the loop does."""
    found: list[str] = []
    loop = threading.get_ident()

    def watch(owner: Any, name: str) -> None:
        work = getattr(owner, name)

        @wraps(work)
        def watched(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() == loop:
                found.append(name)
            return work(*arguments, **named)

        monkeypatch.setattr(owner, name, watched)

    for name in ("load", "begin_rebuild"):
        watch(IndexKeeper, name)
    for name in ("are_in", "replay", "write_aside"):
        watch(aborted, name)
    return found


def restarted(
    folder: Path,
    filling: Fill,
    on_loop: list[str],
    scenario: Scenario,
    *,
    damaged: str = "",
    how: str = "",
    **settings: str,
) -> None:
    """Runs a scenario in a broker behind whose back a file of each segment is damaged."""

    async def whole() -> None:
        first = SocketlessBroker(folder, settings=SETTINGS | settings)
        await first.start()
        assert not await first.server.broker.topics.ensure(["orders"])
        for partition in first.server.broker.partitions:
            if partition.topic == "orders":
                filling(partition)
        await first.stop()
        broker = SocketlessBroker(folder, settings=SETTINGS | settings)
        await broker.start()
        for path in (folder / "orders-0").glob(f"*{damaged}") if damaged else ():
            path.write_bytes(damages()[how](path.read_bytes()))
        on_loop.clear()
        await scenario(broker, broker.server.broker.partitions.leader("orders", 0))
        assert on_loop == []
        await broker.stop()

    asyncio.run(asyncio.wait_for(whole(), 60))


async def asked(broker: SocketlessBroker, request: Any) -> Any:
    api, version = api_for(type(request)), VERSIONS[type(request)]
    answer = broker.ask(b"".join(encode_request(api, version, 1, "client", request)))
    while not answer:
        await broker.socket.was_sent.wait()
        broker.socket.was_sent.clear()
        answer = broker.take_answer()
    return decode_response(api, version, answer[4:])[1]


async def time_of(broker: SocketlessBroker, timestamp: int) -> tuple[int, int]:
    entry = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsTopic(name="orders", partitions=[entry])
    response = await asked(broker, ListOffsetsRequest(topics=[topic]))
    (found,) = response.topics[0].partitions
    assert found.error_code == 0
    return found.timestamp, found.offset


async def fetched(broker: SocketlessBroker, offset: int, *, committed: bool = False) -> Any:
    entry = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=500)
    request = FetchRequest(
        max_bytes=1 << 20,
        isolation_level=int(committed),
        topics=[FetchTopic(topic="orders", partitions=[entry])],
    )
    (found,) = (await asked(broker, request)).responses[0].partitions
    assert found.error_code == 0
    return found


def produce_request(batch: bytearray) -> ProduceRequest:
    entry = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name="orders", partition_data=[entry])
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])


async def produced(broker: SocketlessBroker, batch: bytearray) -> int:
    response = await asked(broker, produce_request(batch))
    (result,) = response.responses[0].partition_responses
    assert result.error_code == 0
    return int(result.base_offset)


@each_damage
@pytest.mark.parametrize("damaged", [INDEX, TIME_INDEX])
@pytest.mark.parametrize("filling", [fill, fill_active])
def test_a_search_by_time(
    tmp_path: Path, on_loop: list[str], filling: Fill, damaged: str, how: str
) -> None:
    async def scenario(broker: SocketlessBroker, _: Partition) -> None:
        for number in (3, 17, 42, BATCHES - 1):
            time = NOW + 10 * number
            assert await time_of(broker, time) == (time, PER_BATCH * number)
        last = NOW + 10 * (BATCHES - 1) + PER_BATCH - 1
        assert await time_of(broker, -3) == (last, END - 1)
        assert await time_of(broker, last + 1) == (-1, -1)

    restarted(tmp_path, filling, on_loop, scenario, damaged=damaged, how=how)


@each_damage
def test_a_fetch_of_a_short_active_segment(tmp_path: Path, on_loop: list[str], how: str) -> None:
    async def scenario(broker: SocketlessBroker, _: Partition) -> None:
        for offset in range(0, END, 7 * PER_BATCH):
            records = (await fetched(broker, offset)).records
            header = next(iter_batches(records))[0]
            assert header.base_offset == offset

    restarted(tmp_path, fill_active, on_loop, scenario, damaged=INDEX, how=how)


@each_damage
def test_the_first_append(tmp_path: Path, on_loop: list[str], how: str) -> None:
    async def scenario(broker: SocketlessBroker, _: Partition) -> None:
        for number in range(3):
            batch = make_batch(PER_BATCH, timestamp=NOW + 10 * (BATCHES + number))
            assert await produced(broker, batch) == END + PER_BATCH * number
        for offset in range(0, END + 3 * PER_BATCH, PER_BATCH):
            header = next(iter_batches((await fetched(broker, offset)).records))[0]
            assert header.base_offset == offset

    restarted(tmp_path, fill_active, on_loop, scenario, damaged=INDEX, how=how)


def test_a_coordinators_first_append(tmp_path: Path, on_loop: list[str]) -> None:
    async def scenario(broker: SocketlessBroker, partition: Partition) -> None:
        server = broker.server.broker
        logs = LocalPartitionLogs(
            "orders",
            5.0,
            server.partitions,
            server.purgatory,
            broker.clock,
            broker.tasks,
            server.checks,
            is_current=lambda: True,
        )
        assert await logs.open(0, partition.leader_epoch).append(make_batch()) == END

    restarted(tmp_path, fill_active, on_loop, scenario, damaged=INDEX, how="noise")


@each_damage
def test_a_fetch_of_aborted_transactions(tmp_path: Path, on_loop: list[str], how: str) -> None:
    """The index file is right again afterwards."""

    async def scenario(broker: SocketlessBroker, partition: Partition) -> None:
        for offset in (0, 40):
            found = await fetched(broker, offset, committed=True)
            first = [entry.first_offset for entry in found.aborted_transactions]
            following = [at for at in range(2, 2 * BATCHES, 4) if at + 1 >= offset]
            assert first == following[: len(first)]
            assert first
        segment = partition.log.segments[0]
        assert segment.txn_index is not None
        assert segment.txn_index.entries is not None
        path = segment.path(TXN_INDEX)
        assert path.read_bytes() == encode_aborted(segment.txn_index.entries)
        assert [each.name for each in path.parent.glob("*.tmp")] == []

    restarted(tmp_path, fill_aborted, on_loop, scenario, damaged=TXN_INDEX, how=how)


@each_damage
def test_an_abort_marker_behind_a_damaged_index(
    tmp_path: Path, on_loop: list[str], how: str
) -> None:
    async def scenario(broker: SocketlessBroker, partition: Partition) -> None:
        topic = WritableTxnMarkerTopic(name="orders", partition_indexes=[0])
        marker = WritableTxnMarker(
            producer_id=1, producer_epoch=0, transaction_result=False, topics=[topic]
        )
        response = await asked(broker, WriteTxnMarkersRequest(markers=[marker]))
        (result,) = response.markers[0].topics[0].partitions
        assert result.error_code == ErrorCode.NONE
        assert partition.log.log_end_offset == 2 * BATCHES + 1
        index = partition.log.segments.active.txn_index
        assert index is not None
        assert index.entries is not None
        assert [entry.first_offset for entry in index.entries] == list(range(2, 2 * BATCHES, 4))

    restarted(tmp_path, fill_aborted_active, on_loop, scenario, damaged=TXN_INDEX, how=how)


@each_damage
def test_retention_by_time(
    tmp_path: Path, on_loop: list[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def scenario(broker: SocketlessBroker, partition: Partition) -> None:
        broker.clock.now_ms = NOW + 1_000_000
        done = asyncio.Event()
        monkeypatch.setattr(broker.server._maintenance, "checkpoint_soon", done.set)
        broker.server._maintenance._retain()
        await done.wait()
        assert partition.log.log_start_offset == END

    restarted(
        tmp_path, fill, on_loop, scenario, damaged=TIME_INDEX, how=how, log_retention_ms="500"
    )


def test_an_append_waits_for_no_job_once_the_index_is_loaded(
    tmp_path: Path, on_loop: list[str]
) -> None:
    """The second append costs the same as in a new log."""

    async def scenario(broker: SocketlessBroker, _: Partition) -> None:
        await produced(broker, make_batch(PER_BATCH))
        api, version = api_for(ProduceRequest), VERSIONS[ProduceRequest]
        frames = [
            b"".join(encode_request(api, version, 1, "other", produce_request(make_batch())))
            for _ in range(2)
        ]
        answers: list[bytes] = []

        def ask(frame: bytes) -> None:
            answers.append(broker.ask(frame))

        lines = [lines_run(partial(ask, frame)) for frame in frames]
        assert all(answers)
        counts.append(lines[1])

    counts: list[int] = []
    restarted(tmp_path / "old", fill_active, on_loop, scenario)
    restarted(tmp_path / "new", lambda partition: None, on_loop, scenario)
    assert abs(counts[0] - counts[1]) <= 5, counts


def test_a_fetch_of_more_segments_than_files_may_be_open_is_answered(
    tmp_path: Path, on_loop: list[str]
) -> None:
    """An index loaded for one partition is unloaded for another."""
    many = str(OPEN_FILES_MAX + 40)

    async def scenario(broker: SocketlessBroker, _: Partition) -> None:
        left = set(range(int(many)))
        while left:
            entries = [
                FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=500)
                for index in sorted(left)
            ]
            topic = FetchTopic(topic="orders", partitions=entries)
            response = await asked(broker, FetchRequest(max_bytes=1 << 20, topics=[topic]))
            results = response.responses[0].partitions
            assert [result.error_code for result in results] == [0] * len(left)
            read = {result.partition_index for result in results if result.records}
            assert read
            left -= read

    restarted(tmp_path, fill_two, on_loop, scenario, num_partitions=many)


def test_a_partition_without_records_waits_for_no_job(tmp_path: Path, on_loop: list[str]) -> None:
    async def scenario(_: SocketlessBroker, partition: Partition) -> None:
        assert partition.append(make_batch(), NOW).base_offset == 0

    restarted(tmp_path, lambda partition: None, on_loop, scenario)


def fill_falling(partition: Partition) -> None:
    for number in range(10):
        append(partition.log, make_batch(PER_BATCH, timestamp=NOW - 10 * number))


def test_retention_opens_no_more_files_than_may_be_open(tmp_path: Path, on_loop: list[str]) -> None:
    async def scenario(broker: SocketlessBroker, _: Partition) -> None:
        checks, most = broker.server.broker.checks, 0
        broker.server._maintenance._retain()
        assert len(checks._waiting) > OPEN_FILES_MAX
        while checks._waiting:
            most = max(most, _open_logs(tmp_path))
            await asyncio.sleep(0)
        assert most <= OPEN_FILES_MAX + 8

    partitions = str(4 * OPEN_FILES_MAX)
    settings = {"num_partitions": partitions, "log_retention_ms": "604800000"}
    restarted(tmp_path, fill_falling, on_loop, scenario, **settings)


def test_retention_of_a_short_log_needs_no_job(tmp_path: Path, on_loop: list[str]) -> None:
    """Its start has read all batch headers."""

    async def scenario(broker: SocketlessBroker, partition: Partition) -> None:
        assert partition.delete_old_segments(NOW) == 0

    def fill_short(partition: Partition) -> None:
        for time in (NOW + 7, NOW):
            append(partition.log, make_batch(timestamp=time))

    restarted(tmp_path, fill_short, on_loop, scenario, log_retention_ms="604800000")


def _open_logs(folder: Path) -> int:
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            path = entry.readlink()
            found += path.suffix == ".log" and path.is_relative_to(folder)
    return found
