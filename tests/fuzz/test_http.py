"""A thousand connections that misuse the HTTP endpoint, beside clients of both kinds."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path

from broker_process import BrokerProcess
from fuzz.good_client import GoodClient, InBackground, allow_files, resident_bytes
from waiting import eventually

COUNT = 1_000
MEMORY_MAX = 32 << 20
_GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
ABUSES = {
    "silent": b"",
    "half a request line": b"GET /heal",
    "half a request": _GET + b"X-Half: ",
    "huge headers": _GET + b"X-Huge: " + b"x" * (100 << 10) + b"\r\n\r\n",
    "very many headers": _GET + b"X: y\r\n" * 50_000 + b"\r\n",
    "a line of a megabyte": b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n",
    "no HTTP": bytes(range(256)) * 100,
}


def _abuse(stack: ExitStack, address: tuple[str, int], data: bytes) -> None:
    """Leave the connection open, even if the server has closed it."""
    sock = stack.enter_context(socket.create_connection(address, timeout=60.0))
    with suppress(ConnectionError):
        sock.sendall(data)


def _http_address(broker: BrokerProcess) -> tuple[str, int]:
    host, _, port = broker.http_address.rpartition(":")
    return host, int(port)


def _status(address: tuple[str, int]) -> int:
    with closing(HTTPConnection(*address, timeout=60.0)) as client:
        client.request("GET", "/healthz")
        return client.getresponse().status


def test_a_thousand_connections_that_misuse_http_do_no_harm(tmp_path: Path) -> None:
    allow_files(COUNT * 2 + 200)
    with BrokerProcess(tmp_path / "data", arguments=("--http", "127.0.0.1:0")) as broker:
        address = _http_address(broker)
        with closing(GoodClient(broker.bootstrap)) as good, ExitStack() as stack:
            assert _status(address) == 200
            good.round(100)
            before = resident_bytes(broker.pid)
            kinds = list(ABUSES.values())
            with InBackground(good):
                for number in range(COUNT):
                    _abuse(stack, address, kinds[number % len(kinds)])
                begun = time.monotonic()
                assert _status(address) == 200, "the endpoint responds while they stay open"
                answered_s = time.monotonic() - begun
            grown = resident_bytes(broker.pid) - before
            print(
                f"\n{COUNT} connections: memory grew by {grown >> 20} MiB, {len(good.latencies_s)} "
                f"calls of a good client took up to {max(good.latencies_s) * 1000:.0f} ms, "
                f"/healthz {answered_s * 1000:.0f} ms"
            )
            assert grown < MEMORY_MAX
            good.call()
        assert eventually(lambda: _status(address) == 200)
        assert "Traceback" not in broker.log()
        assert len(broker.log().splitlines()) < 100
        broker.stop()
