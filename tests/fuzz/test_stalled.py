"""Connections that stall, as many as `--fuzz-stalled`, beside a client that does not."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median

import pytest

from broker_process import BrokerProcess
from fuzz.good_client import GoodClient, resident_bytes
from lakelog.protocol.metadata import MetadataRequest
from lakelog.protocol.registry import APIS
from lakelog.wire.framing import encode_request
from wire_client import FETCH_VERSION, WireClient, create_topic, fetch_request

ROUNDS = 5
CALLS = 400
MORE_MAX_S = 0.005
MEMORY_EACH = 128 << 10
_LONG = 2_000
_HALF = struct.pack(">ihhih", 1 << 20, 3, 1, 1, -1)
"""The beginning of a Metadata request of 1 MiB."""
_METADATA = b"".join(encode_request(APIS[3], 12, 1, "stalled", MetadataRequest(topics=None)))
_LONG_POLL = b"".join(
    encode_request(
        APIS[1],
        FETCH_VERSION,
        1,
        "stalled",
        fetch_request(GoodClient.topic, 1 << 40, max_wait_ms=600_000, min_bytes=1 << 30),
    )
)
STALLS = {
    "silent": b"",
    "within a size": b"\x00\x00",
    "within a request": _HALF + bytes(100),
    "well within a request": _HALF + bytes(20_000),
    "unread responses": _METADATA * 50,
    "requests behind others": _LONG_POLL + _METADATA * 50,
}


@contextmanager
def _stalled(address: tuple[str, int], count: int) -> Iterator[None]:
    kinds = list(STALLS.values())
    with ExitStack() as stack:
        for number in range(count):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(15.0)
            sock.connect(address)
            sock.sendall(kinds[number % len(kinds)])
        yield


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def test_a_good_client_is_served_beside_those_that_stall(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count: int = request.config.getoption("--fuzz-stalled")
    _allow_files(count * 2 + 200)
    with BrokerProcess(tmp_path / "data") as broker:
        with closing(GoodClient(broker.bootstrap)) as good:
            with WireClient(broker.bootstrap) as client:
                create_topic(client, "large-metadata", 200)
            good.round(CALLS)
            alone = [good.round(CALLS) for _ in range(ROUNDS)]
            before = resident_bytes(broker.pid)
            with _stalled(broker.address, count):
                beside = [good.round(CALLS) for _ in range(ROUNDS)]
                each = (resident_bytes(broker.pid) - before) // count
            print(f"\n{count} stalled connections, {each} bytes each; p99 of a produce and a fetch")
            for name, rounds in (("alone", alone), ("beside them", beside)):
                figures = " ".join(f"{seconds * 1000:.2f}" for seconds in rounds)
                print(f"  {name}: {figures} ms, median {median(rounds) * 1000:.2f} ms")
            limit = max(2 * median(alone), median(alone) + MORE_MAX_S)
            assert each < MEMORY_EACH
            assert median(beside) <= limit or count < _LONG
        broker.stop()
