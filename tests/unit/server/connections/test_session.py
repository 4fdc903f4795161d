from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_transport import FakeTransport
from lakelog.base.endpoint import SecurityProtocol
from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.produce import ProduceRequest
from lakelog.records.compression import Codec, compress
from lakelog.server.connections.session import ClientSession, Sampling
from lakelog.wire.framing import decode_response
from poison import COUNT_MAX, REFUSED, poisoned, sealed
from socketless_broker import SocketlessBroker, request_frame
from storage_kit import NOW, make_batch
from wire_client import produce_request


def test_a_session_names_its_client_by_host_and_port() -> None:
    session = ClientSession(FakeTransport(), "PLAINTEXT", SecurityProtocol.PLAINTEXT)
    assert session.peer_name == "127.0.0.1:9092"
    assert (session.listener_name, session.client_software) == ("PLAINTEXT", "")


def test_a_client_that_is_gone_has_no_session() -> None:
    class Gone(FakeTransport):
        def getpeername(self) -> None:
            raise OSError("not connected")

    with pytest.raises(OSError, match="not connected"):
        ClientSession(Gone(), "PLAINTEXT", SecurityProtocol.PLAINTEXT)


GOOD = bytes(make_batch(2, timestamp=NOW - 5000))
BAD = bytes(poisoned(REFUSED[1], Codec.GZIP))
FIRST = 4
APART = 500 + 2 * 40
"""Batches of two records between verified ones."""


def run(
    folder: Path,
    scenario: Callable[[SocketlessBroker], Awaitable[None]],
    *,
    repeats: bool = True,
    **keys: str,
) -> None:
    async def main() -> None:
        broker = SocketlessBroker(folder / "data", repeats=repeats, settings=keys)
        await broker.start()
        try:
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(main())


def answers(data: bytes, version: int = 9) -> list[Any]:
    """The partitions of whole responses, in their order."""
    found = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        _, response = decode_response(api_for(ProduceRequest), version, data[4:end])
        found.append(response.responses[0].partition_responses[0])
        data = data[end:]
    return found


def codes(broker: SocketlessBroker, *batches: bytes, version: int = 9) -> list[int]:
    """Of requests that come one after the other."""
    frames = [request_frame(produce_request("t", batch, acks=1), version) for batch in batches]
    return [answer.error_code for data in frames for answer in answers(broker.ask(data), version)]


def test_the_first_are_verified_and_then_one_in_some_hundreds() -> None:
    sampling, verified = Sampling(), []
    for number in range(3 * APART):
        sampled = sampling.left <= 0
        sampling.note(GOOD, sampled=sampled)
        if sampled:
            verified.append(number)
    assert verified == [0, 1, 2, 3, FIRST + APART, FIRST + 2 * APART + 1]


def test_many_records_are_paid_by_more_batches_but_not_by_ever_more() -> None:
    apart = []
    for count in (1, 100, 200, 1_000, 100_000):
        sampling = Sampling()
        for _ in range(FIRST):
            sampling.note(sealed(b"", Codec.NONE, count), sampled=True)
        apart.append(sampling.left)
    assert apart == [540, 4_500, 8_500, 10_000, 10_000]


def test_after_a_refusal_the_next_is_verified_once() -> None:
    sampling = Sampling()
    for _ in range(FIRST + 3):
        sampling.note(GOOD, sampled=True)
    assert sampling.left == APART
    sampling.repeat()
    assert sampling.left == 0
    sampling.note(GOOD, sampled=True)
    assert sampling.left == APART


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("repeats", [True, False])
def test_a_connection_is_sampled_however_its_requests_are_handled(
    tmp_path: Path, repeats: bool, version: int
) -> None:
    refused = ErrorCode.INVALID_RECORD

    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("t")
        broker.connect()
        assert codes(broker, BAD, BAD, GOOD, BAD, version=version) == [refused, refused, 0, refused]
        assert codes(broker, *[GOOD] * (FIRST - 1), version=version) == [0] * (FIRST - 1)
        assert codes(broker, BAD, GOOD, version=version) == [0, 0], "not one of the sample"
        assert set(codes(broker, *[GOOD] * (APART - 2), version=version)) == {0}
        assert codes(broker, BAD, GOOD, BAD, version=version) == [refused, 0, 0]

    run(tmp_path, scenario, repeats=repeats)


def test_a_topic_may_have_all_or_none_verified(tmp_path: Path) -> None:
    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("t", {"records.verify": "all"})
        broker.connect()
        assert set(codes(broker, *[GOOD] * 20)) == {0}
        assert set(codes(broker, *[BAD] * 20)) == {ErrorCode.INVALID_RECORD}

    run(tmp_path, scenario, log_records_verify="none")


def test_none_looks_at_headers_only(tmp_path: Path) -> None:
    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("t")
        broker.connect()
        assert codes(broker, BAD, BAD) == [0, 0]

    run(tmp_path, scenario, log_records_verify="none")


@pytest.mark.parametrize("together", [1, 20])
def test_impossible_counts_roll_no_segments(tmp_path: Path, together: int) -> None:
    """Each of them would have ended the segment's range of offsets."""
    batch = sealed(GOOD[61:], Codec.NONE, COUNT_MAX, time_ms=NOW - 5000, max_timestamp=NOW - 5000)
    bad = request_frame(produce_request("t", bytes(batch), acks=1), 9)

    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("t")
        broker.connect()
        assert set(codes(broker, *[GOOD] * 10)) == {0}
        for _ in range(500 // together):
            found = [answer.error_code for answer in answers(broker.ask(bad * together))]
            assert found == [ErrorCode.INVALID_RECORD] * together
        log = broker.server.broker.partitions.leader("t", 0).log
        assert (len(log.segments), log.log_end_offset) == (1, 20)

    run(tmp_path, scenario)


def test_a_large_sampled_batch_waits_and_so_do_later_ones(tmp_path: Path) -> None:
    large = bytes(make_batch(30_000, size=1, timestamp=NOW - 60_000, codec=Codec.ZSTD))
    cut = bytearray(make_batch(30_000, size=1, timestamp=NOW - 60_000))
    damaged = bytes(sealed(bytes(cut[61:-1]), Codec.NONE, 30_000))

    def produce(batch: bytes) -> bytes:
        return request_frame(produce_request("t", batch, acks=1), 9)

    async def answered(broker: SocketlessBroker, count: int) -> list[Any]:
        found: list[Any] = []
        while True:
            found += answers(broker.take_answer())
            if len(found) == count:
                return found
            broker.socket.was_sent.clear()
            await broker.socket.was_sent.wait()

    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("t")
        broker.connect()
        assert not broker.ask(produce(large) + produce(damaged) + produce(GOOD))
        first, second, third = await answered(broker, 3)
        assert (first.error_code, first.base_offset) == (0, 0)
        assert second.error_code == ErrorCode.INVALID_RECORD
        assert (third.error_code, third.base_offset) == (0, 30_000)

    run(tmp_path, scenario)


def large_poison() -> Iterator[tuple[str, bytes]]:
    """Batches of 3,000 records that wait for their walk, each damaged at its end."""
    time_ms, count = NOW - 5_000, 3_000
    records = bytes(make_batch(count, timestamp=time_ms)[61:])
    for codec in Codec:
        whole = compress(codec, records)
        for name, payload, claimed in (
            ("a record fewer", whole, count + 1),
            ("a record more", whole, count - 1),
            ("cut off", compress(codec, records[:-1]), count),
            ("a byte behind", compress(codec, records + b"\0"), count),
            ("garbage", whole[: len(whole) // 2], count),
        ):
            newest = time_ms + count - 1
            batch = sealed(payload, codec, claimed, time_ms=time_ms, max_timestamp=newest)
            yield f"{codec.name.lower()} {name}", bytes(batch)


@pytest.mark.parametrize("repeats", [True, False])
def test_a_waiting_batch_is_rejected_in_its_turn_and_not_stored(
    tmp_path: Path, repeats: bool
) -> None:
    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("t")
        broker.connect()
        assert set(codes(broker, *[GOOD] * FIRST)) == {0}
        for stored, (name, batch) in enumerate(large_poison(), FIRST):
            broker.connection.sampling.left = 0
            assert not broker.ask(request_frame(produce_request("t", batch, acks=1), 9))
            broker.socket.incoming += request_frame(produce_request("t", GOOD, acks=1), 9)
            found: list[Any] = []
            while len(found) < 2:
                broker.socket.was_sent.clear()
                await broker.socket.was_sent.wait()
                found += answers(broker.ask(b""))
            assert found[0].error_code == ErrorCode.INVALID_RECORD, name
            assert (found[1].error_code, found[1].base_offset) == (0, 2 * stored), name

    run(tmp_path, scenario, repeats=repeats)


def test_of_large_batches_of_one_request_one_is_verified(tmp_path: Path) -> None:
    """Those behind it are not verified because it waits."""
    cut = bytearray(make_batch(9_000, size=1, timestamp=NOW - 60_000))
    damaged = bytes(sealed(bytes(cut[61:-1]), Codec.NONE, 9_000))

    async def scenario(broker: SocketlessBroker) -> None:
        for topic in ("t", "u", "v"):
            await broker.create_topic(topic)
        broker.connect()
        assert set(codes(broker, *[GOOD] * FIRST)) == {0}
        broker.connection.sampling.left = 0
        request = produce_request("t", damaged, acks=1)
        for topic in ("u", "v"):
            request.topic_data += produce_request(topic, damaged, acks=1).topic_data
        broker.socket.was_sent.clear()
        assert not broker.ask(request_frame(request, 9))
        await broker.socket.was_sent.wait()
        _, response = decode_response(api_for(ProduceRequest), 9, broker.take_answer()[4:])
        found = [topic.partition_responses[0].error_code for topic in response.responses]
        assert found == [ErrorCode.INVALID_RECORD, 0, 0]
        assert codes(broker, BAD, GOOD) == [ErrorCode.INVALID_RECORD, 0], "it is made up for"

    run(tmp_path, scenario)


def test_batches_of_one_partition_in_one_request_keep_their_order(tmp_path: Path) -> None:
    large = bytes(make_batch(30_000, size=1, timestamp=NOW - 60_000, producer=(7, 0, 0)))
    small = bytes(make_batch(2, timestamp=NOW - 5_000, producer=(7, 0, 30_000)))

    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("t")
        broker.connect()
        request = produce_request("t", large, acks=1)
        (topic,) = request.topic_data
        topic.partition_data += produce_request("t", small, acks=1).topic_data[0].partition_data
        broker.socket.was_sent.clear()
        assert not broker.ask(request_frame(request, 9))
        await broker.socket.was_sent.wait()
        _, response = decode_response(api_for(ProduceRequest), 9, broker.take_answer()[4:])
        found = [
            (result.error_code, result.base_offset)
            for result in response.responses[0].partition_responses
        ]
        assert found == [(0, 0), (0, 30_000)]

    run(tmp_path, scenario)


def test_a_large_batch_that_is_refused_does_not_end_the_sample(tmp_path: Path) -> None:
    cut = bytearray(make_batch(30_000, size=1, timestamp=NOW - 60_000))
    damaged = bytes(sealed(bytes(cut[61:-1]), Codec.NONE, 30_000))

    async def scenario(broker: SocketlessBroker) -> None:
        await broker.create_topic("t")
        broker.connect()
        for _ in range(FIRST + 2):
            broker.socket.was_sent.clear()
            assert not broker.ask(request_frame(produce_request("t", damaged, acks=1), 9))
            await broker.socket.was_sent.wait()
            (answer,) = answers(broker.take_answer())
            assert answer.error_code == ErrorCode.INVALID_RECORD

    run(tmp_path, scenario)
