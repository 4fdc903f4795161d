"""Repeated Produce requests are answered byte for byte as a broker without templates does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.produce import ProduceRequest, ProduceResponse
from lakelog.server.connections.connection import Connection
from lakelog.wire.framing import decode_response
from storage_kit import make_batch
from twins import Client, Twins, decoded_connections, run


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
