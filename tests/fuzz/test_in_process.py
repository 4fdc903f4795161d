"""Damaged frames, as many as `--fuzz-frames`, into whole brokers in the test's processes.

Nothing may escape a handler, stop the loop or stay in memory; records that a good client
has written and reads on its own connection stay intact.
"""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path

import pytest

from fuzz.fed_broker import FedBroker, Good, create
from fuzz.frames import NEGOTIATION, Frames

STALL_MAX_S = 1.0
GROWTH_MIN = 32 << 20
_FRAMES_PER_CONNECTION = 25
_CHECK_EVERY = 2_000
_PARTS = 2
"""That can run side by side, each with a broker and a seed of its own."""
_LONG = 100_000
_ITERATIONS = 5
"""Iterations of the loop after which an unanswered request counts as a long wait."""


class Stalls:
    """Watches how long the loop goes without a loop iteration."""

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


async def _fuzz(server: FedBroker, frames: Frames, count: int, stalls: Stalls, good: Good) -> int:
    """Returns the bytes sent."""
    sent = number = 0
    while number < count:
        sock, connection = server.open()
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
            for _ in range(_ITERATIONS):
                if connection.pending and not connection.closed:
                    await _iteration(stalls, frame)
            if connection.closed or connection.pending:
                break
        connection.close()
        await _iteration(stalls, frame)
    return sent


async def _iteration(stalls: Stalls, frame: bytes) -> None:
    begun = time.monotonic()
    await asyncio.sleep(0)
    stalls.note(begun, frame)


@pytest.mark.parametrize("part", range(_PARTS))
def test_damaged_frames_harm_no_other_connection(
    tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, part: int
) -> None:
    count: int = request.config.getoption("--fuzz-frames") // _PARTS
    seed: int = request.config.getoption("--fuzz-seed") * _PARTS + part
    caplog.set_level("ERROR")

    async def scenario() -> None:
        async with FedBroker(tmp_path) as server:
            good = Good(server.open()[0])
            await create(good)
            await good.check()
            warm = Stalls()
            await _fuzz(server, Frames(-1 - seed), min(count, 20_000), warm, good)
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
            assert stalls.longest_s < STALL_MAX_S or count < _LONG, stalls.culprit[:200].hex()
            await good.check()

    asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
