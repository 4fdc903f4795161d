"""Repeated requests are answered byte for byte as they would be had none come before."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog.server.connections.connection import Connection
from twins import PARTITIONS, Client, Twins, decoded_connections, run


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Connection]]:
    with decoded_connections(monkeypatch) as seen:
        yield seen


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
        if self.random.random() < 0.03 or connection.closed or connection.pending:
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
        """Some of them wrong; not more than are handled in one iteration of the loop."""
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
