"""A process with many connections that fetch much and read slowly, limited by its CPU.

Runs as `python -m fuzz.slow_readers HOST PORT COUNT`.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fuzz.good_client import allow_files
from lakelog.protocol.registry import APIS
from lakelog.wire.framing import encode_request
from wire_client import FETCH_VERSION, fetch_request

TOPIC = "much"
READ_SIZE = 64 << 10
_FETCH = b"".join(
    encode_request(
        APIS[1],
        FETCH_VERSION,
        1,
        "slow",
        fetch_request(TOPIC, 0, partition_max_bytes=50 << 20, max_bytes=50 << 20),
    )
)


@contextmanager
def slow_readers(address: tuple[str, int], count: int) -> Iterator[None]:
    """So many connections of another process, that begin to fetch."""
    command = [sys.executable, "-m", "fuzz.slow_readers", *map(str, (*address, count))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"connected\n"
            yield
        finally:
            child.kill()


def _read(address: tuple[str, int], count: int) -> None:
    allow_files(count + 100)
    with ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection(address)) for _ in range(count)]
        for sock in socks:
            sock.sendall(_FETCH * 3)
            sock.setblocking(False)
        print("connected", flush=True)
        buffer = bytearray(READ_SIZE)
        while True:
            for sock in socks:
                with suppress(BlockingIOError):
                    sock.recv_into(buffer)


if __name__ == "__main__":
    _read((sys.argv[1], int(sys.argv[2])), int(sys.argv[3]))
