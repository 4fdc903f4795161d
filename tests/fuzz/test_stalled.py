"""Connections that stall, as many as `--fuzz-stalled`, beside a client that does not."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from broker_process import BrokerProcess
from fuzz.fed_broker import FedBroker, FedSocket, Good, create
from fuzz.good_client import GoodClient, allow_files, resident_bytes
from lakelog.protocol.metadata import MetadataRequest
from lakelog.protocol.registry import APIS
from lakelog.runtime.loop_iterations import PART_S
from lakelog.runtime.posix import SystemClock
from lakelog.server.connections.request_budget import FREE, SHARE, Rank
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
            sock.settimeout(60.0)
            sock.connect(address)
            sock.sendall(kinds[number % len(kinds)])
        yield


_ITERATIONS_MAX = 24
"""Of the loop, for a produce and a fetch: each is read, handled and awaited in a few."""
_FLOOD = 300


def _on_the_loop(sock: FedSocket, data: bytes) -> None:
    """Feed like a socket of the loop, which is read once a loop iteration while it has data."""
    sock.incoming += data

    def read() -> None:
        if sock.incoming and sock.readable is not None:
            sock.readable()
            asyncio.get_running_loop().call_soon(read)

    asyncio.get_running_loop().call_soon(read)


class _LoopFedSocket(FedSocket):
    feed = _on_the_loop


@pytest.mark.parametrize("request_", [_METADATA, _LONG_POLL], ids=["metadata", "fetch"])
def test_a_flood_of_requests_takes_a_bounded_part_of_each_loop_iteration(
    tmp_path: Path, request_: bytes
) -> None:
    """Requests begun in one loop iteration and the loop iterations of a good client are counted,
    not timed."""

    async def scenario() -> None:
        clock = _LateClock()
        async with FedBroker(tmp_path, clock) as server:
            good = Good(server.open(_LoopFedSocket)[0])
            await create(good)
            await good.check()
            counted = _Counted(server, clock)
            for _ in range(_FLOOD):
                server.open(_LoopFedSocket)[0].feed(request_ * 50)
            for _ in range(20):
                begun = counted.iterations
                await good.check()
                assert counted.iterations - begun <= _ITERATIONS_MAX
            assert 0 < counted.handled < _FLOOD * 50, "the flood is over, or never was"
            untimed = 0 if request_ is _METADATA else FREE + 2 * SHARE
            assert counted.most_in_a_iteration <= untimed + len(Rank) + 1

    asyncio.run(scenario())


class _LateClock(SystemClock):
    """A clock by which each request takes all of a loop iteration, on any machine."""

    def __init__(self) -> None:
        self.late_s = 0.0

    def monotonic(self) -> float:
        return SystemClock.monotonic() + self.late_s


class _Counted:
    """Iterations of the loop, and the requests of each that were handed to the dispatcher."""

    def __init__(self, server: FedBroker, clock: _LateClock) -> None:
        self._clock = clock
        self.iterations = self.handled = self.most_in_a_iteration = 0
        self._before = 0
        self._server = server
        self._on_request = server.dispatcher.on_request
        server.dispatcher.on_request = self._note  # type: ignore[assignment, method-assign]
        self._iteration()

    def _note(self, *arguments: Any) -> Any:
        self.handled += 1
        self._clock.late_s += PART_S
        return self._on_request(*arguments)

    def _iteration(self) -> None:
        self.iterations += 1
        self.most_in_a_iteration = max(self.most_in_a_iteration, self.handled - self._before)
        self._before = self.handled
        asyncio.get_running_loop().call_soon(self._iteration)


def test_a_good_client_is_served_beside_stalled_connections(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count: int = request.config.getoption("--fuzz-stalled")
    allow_files(count * 2 + 200)
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
