"""Damaged frames over TCP, as many as `--fuzz-tcp-frames`, while a good client works."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from fuzz.frames import NEGOTIATION, Frames
from fuzz.good_client import GoodClient, InBackground, resident_bytes

GROWTH_MIN = 32 << 20
LATENCY_MAX_S = 2.0
"""Of a produce and a fetch, with a fuzzer and a broker on the same cores."""
_FRAMES_PER_CONNECTION = 10
_TIMEOUT_S = 60.0
_LONG = 50_000


def _send(address: tuple[str, int], frames: Frames) -> tuple[int, int]:
    """Frames on one connection until the broker closes it; how many, and their bytes."""
    count = sent = 0
    with socket.create_connection(address, timeout=_TIMEOUT_S) as sock:
        with _unless_closed():
            if frames.random.random() < 0.5:
                sock.sendall(NEGOTIATION)
            for _ in range(_FRAMES_PER_CONNECTION):
                frame = frames.next()
                count += 1
                sent += len(frame)
                sock.sendall(frame)
            sock.shutdown(socket.SHUT_WR)
        with _unless_closed():
            while sock.recv(1 << 20):
                pass
    return count, sent


@contextmanager
def _unless_closed() -> Iterator[None]:
    """Accept an error, which means that the broker has closed the connection, but no timeout."""
    try:
        yield
    except TimeoutError:
        raise
    except OSError:
        pass


def _fuzz(address: tuple[str, int], frames: Frames, wanted: int) -> tuple[int, int]:
    count = sent = 0
    while count < wanted:
        more, size = _send(address, frames)
        count += more
        sent += size
    return count, sent


def test_damaged_frames_harm_no_other_connection(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    wanted: int = request.config.getoption("--fuzz-tcp-frames")
    frames = Frames(request.config.getoption("--fuzz-seed"))
    with BrokerProcess(tmp_path / "data") as broker:
        with closing(GoodClient(broker.bootstrap)) as good:
            with InBackground(good):
                _fuzz(broker.address, frames, wanted // 10)
                before = resident_bytes(broker.pid)
                count, sent = _fuzz(broker.address, frames, wanted)
                grown = resident_bytes(broker.pid) - before
            slowest_s = max(good.latencies_s)
            print(
                f"\n{count} frames, {sent} bytes: memory grew by {grown >> 20} MiB, "
                f"{len(good.latencies_s)} calls of a good client took up to "
                f"{slowest_s * 1000:.0f} ms"
            )
            assert grown <= max(GROWTH_MIN, 4 * sent)
            assert slowest_s < LATENCY_MAX_S or wanted < _LONG
            good.call()
        assert "UNKNOWN_SERVER_ERROR" not in broker.log()
        assert "Traceback" not in broker.log()
        broker.stop()
