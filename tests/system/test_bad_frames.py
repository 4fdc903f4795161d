"""Hostile or broken bytes cost one connection and one log line, and nothing else."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker_process import BrokerProcess
from lakelog.protocol.api import Api
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from lakelog.protocol.registry import APIS
from lakelog.wire.framing import encode_request
from waiting import eventually
from wire_client import (
    FETCH_VERSION,
    WireClient,
    batch_of,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    stored_batches,
)

METADATA = APIS[3]


class Bystander:
    """A client that minds its own business while others misbehave."""

    topic = "bystander"

    def __init__(self, bootstrap: str, broker: BrokerProcess | None) -> None:
        self.bootstrap, self._broker = bootstrap, broker
        self._client = WireClient(bootstrap)
        self._produced: list[bytes] = []
        self.topic = f"bystander-{os.getpid()}"
        create_topic(self._client, self.topic)

    def close(self) -> None:
        self._client.close()

    def check(self) -> None:
        """It still reads and writes on its connection, and all it wrote is there."""
        value = b"%d" % len(self._produced)
        assert produce(self._client, self.topic, batch_of(value)).base_offset == len(self._produced)
        self._produced.append(value)
        assert fetch(self._client, self.topic, 0).high_watermark == len(self._produced)
        stored = b"".join(bytes(batch) for _, batch in stored_batches(self.bootstrap, self.topic))
        assert all(value in stored for value in self._produced)

    def log_lines(self) -> list[dict[str, Any]]:
        return self._broker.untimed_lines() if self._broker is not None else []

    def expect_one_line(self, before: int) -> None:
        if self._broker is not None:
            eventually(lambda: len(self.log_lines()) > before, what="a log line")
            assert len(self.log_lines()) == before + 1, self.log_lines()[before:]


@pytest.fixture(scope="module")
def bystander(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bystander]:
    elsewhere = os.environ.get("LAKELOG_TEST_BOOTSTRAP")
    if elsewhere:
        with closing(Bystander(elsewhere, None)) as bystander:
            yield bystander
        return
    folder: Path = tmp_path_factory.mktemp("bad-frames") / "data"
    with BrokerProcess(folder) as broker:
        with closing(Bystander(broker.bootstrap, broker)) as bystander:
            yield bystander
        broker.stop()


def _frame(api: Api, version: int, body: bytes, *, size: int | None = None) -> bytes:
    head = api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x01\xff\xff"
    if version >= api.flexible_from:
        head += b"\x00"
    whole = head + body
    return (len(whole) if size is None else size).to_bytes(4, "big", signed=True) + whole


def _unknown_api() -> bytes:
    frame = bytearray(_frame(METADATA, 1, bytes(4)))
    frame[4:6] = (999).to_bytes(2, "big")
    return bytes(frame)


def _cut_metadata() -> bytes:
    """A request whose last field is missing, in a frame of the right size."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a topic")])
    whole = b"".join(encode_request(METADATA, 5, 1, None, request))[4:-4]
    return len(whole).to_bytes(4, "big") + whole


BAD_FRAMES = {
    "garbage": random.Random(5).randbytes(4096).replace(b"\x00", b"\xff"),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
    "a frame of 2^31-1 bytes": _frame(METADATA, 1, bytes(64), size=2**31 - 1),
    "a frame of negative size": _frame(METADATA, 1, bytes(64), size=-1),
    "a frame of the most negative size": _frame(METADATA, 1, bytes(64), size=-(2**31)),
    "a frame beyond the limit": _frame(METADATA, 1, bytes(64), size=104_857_601),
    "a frame too small for a header": b"\x00\x00\x00\x04\x00\x03\x00\x01",
    "an unknown API": _unknown_api(),
    "an unsupported version": _frame(METADATA, 99, bytes(8)),
    "a negative version": b"\x00\x00\x00\x0a\x00\x03\xff\xff\x00\x00\x00\x01\xff\xff",
    "an array of 2^31-1 elements": _frame(METADATA, 1, b"\x7f\xff\xff\xff"),
    "a string that passes the end": _frame(METADATA, 1, b"\x00\x00\x00\x01\x7f\xff" + b"x" * 9),
    "a request that ends too early": _cut_metadata(),
}


# Java reads any negative count as null.
STRICTLY_BAD_FRAMES = {
    "an array of 2^32-2 elements": _frame(METADATA, 9, b"\xff\xff\xff\xff\x0f\x00\x00\x00\x00"),
    "an array of a negative count": _frame(METADATA, 1, b"\x80\x00\x00\x00"),
}


@pytest.mark.parametrize("kind", BAD_FRAMES)
def test_a_bad_frame_closes_its_connection_alone(bystander: Bystander, kind: str) -> None:
    _expect_closed(bystander, BAD_FRAMES[kind])


def _expect_closed(bystander: Bystander, frame: bytes) -> None:
    bystander.check()
    before = len(bystander.log_lines())
    with WireClient(bystander.bootstrap) as client:
        client.send_bytes(frame)
        assert client.is_closed_by_broker()
    bystander.expect_one_line(before)
    bystander.check()


@pytest.mark.usefixtures("lakelog_only")
@pytest.mark.parametrize("kind", STRICTLY_BAD_FRAMES)
def test_a_frame_that_other_brokers_accept_closes_its_connection(
    bystander: Bystander, kind: str
) -> None:
    _expect_closed(bystander, STRICTLY_BAD_FRAMES[kind])


def test_bytes_after_a_message_are_ignored(bystander: Bystander) -> None:
    """As librdkafka 2.16 sends them after a Metadata request for all topics."""
    with WireClient(bystander.bootstrap) as client:
        client.send_bytes(_frame(METADATA, 1, bytes(4) + b"extra"))
        assert len(client.receive_frame()) > 8


def test_a_client_that_leaves_within_a_frame(bystander: Bystander) -> None:
    with WireClient(bystander.bootstrap) as client:
        client.send_bytes(_frame(METADATA, 1, bytes(64), size=1_000_000))
    with WireClient(bystander.bootstrap) as client:
        frame = produce_request(bystander.topic, batch_of(b"never whole"))
        whole = b"".join(encode_request(APIS[0], 9, 1, None, frame))
        client.send_bytes(whole[:-5])
    bystander.check()


def test_a_request_that_comes_byte_by_byte(bystander: Bystander) -> None:
    with WireClient(bystander.bootstrap) as client:
        for value in _frame(METADATA, 1, bytes(4)):
            client.send_bytes(bytes([value]))
        assert len(client.receive_frame()) > 8


def _resident_kb(broker: BrokerProcess) -> int:
    lines = Path(f"/proc/{broker.pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS"))
    return int(line.split()[1])


def test_a_declared_size_takes_no_memory(bystander: Bystander) -> None:
    if bystander._broker is None:
        pytest.skip("another broker is being tested")
    before = _resident_kb(bystander._broker)
    clients = [WireClient(bystander.bootstrap) for _ in range(20)]
    for client in clients:
        client.send_bytes(_frame(METADATA, 1, bytes(64), size=100_000_000))
    bystander.check()
    assert _resident_kb(bystander._broker) < before + 50_000
    for client in clients:
        client.close()


def test_a_reader_that_does_not_read_takes_little_memory(bystander: Bystander) -> None:
    if bystander._broker is None:
        pytest.skip("another broker is being tested")
    value = random.Random(3).randbytes(900_000)
    with WireClient(bystander.bootstrap) as client:
        topic = f"{bystander.topic}-big"
        create_topic(client, topic)
        for _ in range(4):
            produce(client, topic, batch_of(value))
        before = _resident_kb(bystander._broker)
        for _ in range(300):
            client.send(fetch_request(topic, 0), FETCH_VERSION)
        bystander.check()
        assert _resident_kb(bystander._broker) < before + 60_000
    bystander.check()
