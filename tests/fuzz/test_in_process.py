"""Damaged frames, as many as `--fuzz-frames`, into a whole broker in this process.

Nothing may escape a handler, stop the loop or stay in memory; what a good client has written and
reads on its own connection stays as it is.
"""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path
from typing import Any

import pytest

from fuzz.fed_server import FedServer, FedSocket
from fuzz.frames import NEGOTIATION, Frames
from lakelog.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from wire_client import FETCH_VERSION, PRODUCE_VERSION, batch_of, fetch_request, produce_request

STALL_MAX_S = 1.0
GROWTH_MIN = 32 << 20
_TOPIC = "good"
_FRAMES_PER_CONNECTION = 25
_CHECK_EVERY = 2_000
_TURNS = 5
"""Of the loop, until a request that is not answered is taken for one that waits for long."""


class Good:
    """A client that writes, and reads what it wrote."""

    def __init__(self, sock: FedSocket) -> None:
        self._sock = sock
        self._count = 0

    async def ask(self, message: Any, version: int) -> Any:
        return await self._sock.ask(message, version)

    async def check(self) -> None:
        value = b"value %d" % self._count
        produced = await self.ask(produce_request(_TOPIC, batch_of(value)), PRODUCE_VERSION)
        (answer,) = produced.responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (0, self._count)
        fetched = await self.ask(fetch_request(_TOPIC, self._count), FETCH_VERSION)
        assert value in bytes(fetched.responses[0].partitions[0].records)
        self._count += 1


class Stalls:
    """Watches how long the loop goes without a turn."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.culprit = b""

    def note(self, begun: float, frame: bytes) -> None:
        took = time.monotonic() - begun
        if took > self.longest_s:
            self.longest_s, self.culprit = took, frame


def _resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


async def _fuzz(server: FedServer, frames: Frames, count: int, stalls: Stalls, good: Good) -> int:
    """Returns the bytes sent."""
    sent = number = 0
    while number < count:
        sock, connection = server.connect()
        if frames.random.random() < 0.5:
            sock.feed(NEGOTIATION)
        for _ in range(_FRAMES_PER_CONNECTION):
            frame = frames.next()
            sent += len(frame)
            number += 1
            begun = time.monotonic()
            sock.feed(frame)
            stalls.note(begun, frame)
            if number % _CHECK_EVERY == 0:
                await good.check()
            for _ in range(_TURNS):
                if connection.is_waiting and not connection.closed:
                    await _turn(stalls, frame)
            if connection.closed or connection.is_waiting:
                break
        connection.close()
        await _turn(stalls, frame)
    return sent


async def _turn(stalls: Stalls, frame: bytes) -> None:
    begun = time.monotonic()
    await asyncio.sleep(0)
    stalls.note(begun, frame)


def test_damaged_frames_harm_nobody(
    tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    count: int = request.config.getoption("--fuzz-frames")
    seed: int = request.config.getoption("--fuzz-seed")
    caplog.set_level("ERROR")

    async def scenario() -> None:
        async with FedServer(tmp_path) as server:
            good = Good(server.connect()[0])
            await _create(good)
            await good.check()
            warm = Stalls()
            await _fuzz(server, Frames(seed + 1), min(count, 20_000), warm, good)
            gc.collect()
            before, stalls = _resident_bytes(), Stalls()
            sent = await _fuzz(server, Frames(seed), count, stalls, good)
            gc.collect()
            grown = _resident_bytes() - before
            print(
                f"\n{count} frames, {sent} bytes: longest stall {stalls.longest_s * 1000:.0f} ms, "
                f"memory grew by {grown >> 20} MiB"
            )
            assert grown <= max(GROWTH_MIN, 4 * sent)
            assert stalls.longest_s < STALL_MAX_S or count < 100_000, stalls.culprit[:200].hex()
            await good.check()

    asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def _create(good: Good) -> None:
    topic = CreatableTopic(name=_TOPIC, num_partitions=1, replication_factor=1)
    created = await good.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    assert created.topics[0].error_code == 0
