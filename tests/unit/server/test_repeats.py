"""Repeated requests are answered byte for byte as they would be had none come before."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.produce import ProduceRequest, ProduceResponse
from lakelog.server.connections.connection import Connection
from lakelog.wire.framing import decode_response
from storage_kit import make_batch
from twins import PARTITIONS, Client, Twins, decoded_connections, run


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Connection]]:
    with decoded_connections(monkeypatch) as seen:
        yield seen


def test_produce_in_every_version(tmp_path: Path, decoded: list[Connection]) -> None:
    def scenario(twins: Twins) -> None:
        for version in range(3, 14):
            twins.connect()
            client = Client(twins, version, producer_id=version)
            for size in (10, 100, 127, 128, 16_000, 16_300, 16_400, 100_000, 10, 10):
                answer = twins.ask(client.produce(client.batch(size)))
            _, response = decode_response(api_for(ProduceRequest), version, answer[4:])
            assert isinstance(response, ProduceResponse)
            end = 15 * (version - 3) + 9
            assert response.responses[0].partition_responses[0].base_offset == end
            twins.ask(b"".join(client.produce(client.batch(50), acks=-1) for _ in range(5)))
            assert decoded.count(twins.plain.connection) == 15
            known_again = 11 if version >= 7 else 0
            assert decoded.count(twins.quick.connection) == 15 - known_again

    run(tmp_path, scenario)


def test_fetch_in_every_version(tmp_path: Path, decoded: list[Connection]) -> None:
    def scenario(twins: Twins) -> None:
        producer = Client(twins, 9)
        for size in (10, 100, 16_000, 40_000, 100_000, 50, 60, 70):
            twins.ask(producer.produce(producer.batch(size)))
        for version in range(4, 19):
            for committed in (False, True):
                for in_session in (False, True):
                    check_fetches(twins, version, committed, in_session, decoded)

    run(tmp_path, scenario)


def check_fetches(
    twins: Twins, version: int, committed: bool, in_session: bool, decoded: list[Connection]
) -> None:
    twins.connect()
    client = Client(twins, version)
    for offset in range(8):
        if not in_session:
            client.session = (0, -1)
        response = client.consume(client.fetch(offset, max_bytes=1, committed=committed))
        data = response.responses[0].partitions[0]
        assert struct.unpack_from(">q", data.records)[0] == offset
    assert not client.consume(client.fetch(8, committed=committed)).error_code
    assert decoded.count(twins.plain.connection) == 9
    if version >= 10:
        # The first of a session names none, and the one beyond the end has nothing to answer with.
        assert decoded.count(twins.quick.connection) == 3 + in_session


def test_a_produce_request_that_is_another_after_all(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        for version in (8, 9, 13):
            twins.connect()
            client = Client(twins, version, producer_id=version)
            for _ in range(3):
                twins.ask(client.produce(client.batch(100)))
            frame = client.produce(client.batch(100))
            at = frame.index(client.batch(100, skip=-1)[61:])
            for other in (
                frame[:-1] + b"\x01",
                frame[: at - 61 - 2] + b"\xff\x7f" + frame[at - 61 :],
                frame[: at - 61 - 2] + b"\x80\x01" + frame[at - 61 :],
                client.produce(make_batch(producer=(version, 0, 3), transactional=True)),
                client.produce(make_batch(producer=(version, 0, 9))),
                client.produce(b""),
                client.produce(None),
                client.produce(client.batch(100, skip=-1)),
            ):
                twins.ask(other)

    run(tmp_path, scenario)


def test_a_fetch_that_is_another_after_all(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        producer = Client(twins, 13)
        twins.ask(b"".join(producer.produce(producer.batch(100)) for _ in range(9)))
        client = Client(twins, 16)
        for offset in range(4):
            client.consume(client.fetch(offset, max_bytes=1))
        assert client.consume(client.fetch(None)).responses[0].partitions[0].records[7] == 3
        client.consume(client.fetch(4, max_bytes=1))
        session_id, epoch = client.session
        for wrong in ((session_id, epoch - 1), (session_id, -1), (session_id, epoch)):
            client.session = wrong
            client.consume(client.fetch(5, max_bytes=1))

    run(tmp_path, scenario)


def test_a_fetch_that_has_to_wait_is_answered_by_a_repeated_produce(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        producer, consumer = Client(twins, 13), Client(twins, 16)
        for _ in range(3):
            twins.ask(producer.produce(producer.batch(100)))
        twins.connect()
        for _ in range(3):
            consumer.session = (0, -1)
            consumer.consume(consumer.fetch(0, min_bytes=500, max_wait_ms=60_000))
        consumer.session = (0, -1)
        assert not twins.ask(consumer.fetch(1, min_bytes=500, max_wait_ms=60_000))
        twins.return_to_earlier()
        twins.ask(producer.produce(producer.batch(400)))
        twins.return_to_earlier()
        assert twins.take_answer()

    run(tmp_path, scenario)


def test_a_session_that_another_connection_changes(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        producer = Client(twins, 13)
        twins.ask(b"".join(producer.produce(producer.batch(100)) for _ in range(9)))
        client = Client(twins, 16)
        for offset in range(4):
            client.consume(client.fetch(offset, max_bytes=400))
        twins.connect()
        other = Client(twins, 16)
        other.session = client.session
        other.consume(other.fetch(4, max_bytes=1))
        twins.return_to_earlier()
        client.session = other.session
        assert len(client.consume(client.fetch(5, max_bytes=400)).responses) == 1

    run(tmp_path, scenario)


@pytest.mark.parametrize("client_id", ["c" * 2000, "c"])
def test_requests_that_are_not_learned(tmp_path: Path, client_id: str) -> None:
    """Long names, and partitions that are not there, cost no more than without."""

    def scenario(twins: Twins) -> None:
        client = Client(twins, 13, client_id=client_id)
        for _ in range(4):
            twins.ask(client.produce(client.batch(10), partition=0 if client_id != "c" else 7))
        repeat: Any = twins.quick.connection.repeat
        assert repeat is None or repeat._partition is None

    run(tmp_path, scenario)


def test_an_internal_topic_is_refused_every_time(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        for broker in twins.both:
            partition = broker.server.broker.partitions.leader("orders", 0)
            partition.topic = "__consumer_offsets"
        client = Client(twins, 13)
        for _ in range(4):
            answer = twins.ask(client.produce(client.batch(10)))
            _, response = decode_response(api_for(ProduceRequest), 13, answer[4:])
            assert isinstance(response, ProduceResponse)
            (result,) = response.responses[0].partition_responses
            assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(tmp_path, scenario)


class History:
    """Random requests, most of them like the one before, some of them wrong."""

    def __init__(self, twins: Twins, seed: int) -> None:
        self.twins = twins
        self.random = random.Random(seed)
        self.offset = 0
        self.renew()

    def renew(self) -> None:
        """Another client, on connections of its own."""
        self.twins.connect()
        self.producer_id = self.random.randrange(1, 1000)
        self.producer = self._client(self.random.choice((5, 7, 8, 9, 12, 13)))
        self.consumer = self._client(self.random.choice((6, 10, 11, 12, 13, 16, 18)))
        self.committed = self.random.random() < 0.5
        self.partition = self.random.randrange(PARTITIONS)
        self.max_bytes = self.random.choice((1, 1000))

    def _client(self, version: int) -> Client:
        name = self.random.choice(("", "a", "ü" * 20, "n" * 200))
        return Client(self.twins, version, client_id=name, producer_id=self.producer_id)

    def step(self) -> None:
        choices = (
            self.produce,
            self.fetch,
            self.produce_wrongly,
            self.fetch_otherwise,
            self.produce_many,
        )
        (act,) = self.random.choices(choices, weights=(10, 10, 3, 2, 2))
        self.go_on()
        frame = act()
        (size,) = struct.unpack_from(">i", frame)
        if size == len(frame) - 4 and self.random.random() < 0.04:
            self.twins.ask(self.garbled(frame))
        elif act in (self.fetch, self.fetch_otherwise):
            self.consumer.consume(frame)
        else:
            self.twins.ask(frame)
        connection = self.twins.quick.connection
        if self.random.random() < 0.03 or connection.closed or connection.is_waiting:
            self.renew()
        for broker in self.twins.both:
            broker.clock.now_ms += 1

    def go_on(self) -> None:
        """The producer learns the results of its batches."""
        for index in range(PARTITIONS):
            log = self.twins.plain.server.broker.partitions.leader("orders", index).log
            entry = log.producers.entries.get(self.producer_id)
            self.producer.sequence[index] = 0 if entry is None else entry.last_sequence + 1

    def produce(self) -> bytes:
        acks = self.random.choice((1, 1, 1, -1))
        partition, size = self.partition, self.random.choice((0, 1, 60, 70, 500, 17_000, 40_000))
        return b"".join(
            self.producer.produce(
                self.producer.batch(size, self.random.randint(1, 3), partition=partition),
                partition=partition,
                acks=acks,
            )
            for _ in range(self.random.choice((1, 1, 1, 6)))
        )

    def produce_many(self) -> bytes:
        """Some of them wrong; not more than are handled in one turn of the loop."""
        return b"".join(
            self.produce_wrongly() if self.random.random() < 0.1 else self.produce()
            for _ in range(self.random.randint(2, 10))
        )

    def produce_wrongly(self) -> bytes:
        batch: bytes | None = self.producer.batch(100, skip=self.random.choice((-1, 5)))
        assert batch is not None
        damage = self.random.choice(("none", "null", "empty", "short", "crc", "attributes", "size"))
        if damage == "null":
            batch = None
        elif damage == "size":
            batch = self.producer.batch(1_100_000, skip=5)
        elif damage != "none":
            cut = {"empty": 0, "short": 50}.get(damage, len(batch))
            changed = bytearray(batch[:cut])
            if damage in ("crc", "attributes"):
                changed[{"crc": -1, "attributes": 22}[damage]] ^= 0x10
            batch = bytes(changed)
        partition = self.random.choice((0, 1, PARTITIONS, -1))
        return self.producer.produce(batch, partition=partition, acks=self.random.choice((1, 0, 3)))

    def fetch(self) -> bytes:
        frame = self.consumer.fetch(self.offset, max_bytes=self.max_bytes, committed=self.committed)
        self.offset += 1
        return frame

    def fetch_otherwise(self) -> bytes:
        self.offset = self.random.choice((0, 0, 3, -1, 1 << 40))
        if self.random.random() < 0.5:
            self.consumer.session = self.random.choice(((0, -1), (0, 0), (5, 5)))
        return self.consumer.fetch(
            self.offset,
            max_bytes=self.random.choice((-1, 0, 1, 1 << 20)),
            min_bytes=self.random.choice((0, 1, 1 << 20)),
            committed=self.random.random() < 0.5,
        )

    def garbled(self, frame: bytes) -> bytes:
        """Still one request, so that later ones are decoded."""
        changed = bytearray(frame)
        if self.random.random() < 0.5:
            changed[self.random.randrange(8, len(changed))] ^= 1 << self.random.randrange(8)
        else:
            changed += bytes(3)
            struct.pack_into(">i", changed, 0, len(changed) - 4)
        return bytes(changed)


@pytest.mark.parametrize("seed", range(6))
def test_any_history(tmp_path: Path, seed: int, decoded: list[Connection]) -> None:
    def scenario(twins: Twins) -> None:
        history = History(twins, seed)
        for _ in range(500):
            history.step()
        plain = sum(one._sink is twins.plain.dispatcher for one in decoded)
        assert len(decoded) - plain < 0.85 * plain, "some were known again"

    run(tmp_path, scenario)
