"""Repeated Fetch requests are answered byte for byte as a broker without templates does."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog.server.connections.connection import Connection
from twins import Client, Twins, decoded_connections, run


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Connection]]:
    with decoded_connections(monkeypatch) as seen:
        yield seen


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
