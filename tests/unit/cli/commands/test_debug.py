"""`lakelog debug requests`, against an HTTP server of the test."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from lakelog.cli.main import run

REQUEST = {
    "time_ms": 0,
    "duration_s": 0.0015,
    "size_bytes": 70,
    "api": "Fetch",
    "version": 17,
    "client_id": "a\x1b[31mb",
    "peer": "127.0.0.1:5",
}


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[Any], list[str]]]:
    """Address, the lines to answer with, and the requested paths."""
    lines: list[Any] = []
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200 if lines else 400)
            self.end_headers()
            for line in lines:
                self.wfile.write(json.dumps(line).encode() + b"\n")
            if not lines:
                self.wfile.write(b"unknown api Fetsch\n")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}", lines, paths
    server.shutdown()
    thread.join()
    server.server_close()


def test_requests_are_shown_up_to_the_limit_without_control_characters(
    endpoint: tuple[str, list[Any], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    address, lines, paths = endpoint
    lines += [{"watching": True}, {"missed": 7}, REQUEST, REQUEST]
    words = ["debug", "requests", "--tail", "-n", "1", "--api", "Fetch", "--http", address]
    assert run(words) == 0
    shown = capsys.readouterr()
    assert shown.out.count("Fetch v17") == 1
    assert "1.500 ms" in shown.out
    assert "\x1b" not in shown.out
    assert "7 requests not shown" in shown.err
    assert paths == ["/debug/requests?api=Fetch&client="]


def test_json_is_the_request_as_it_is(
    endpoint: tuple[str, list[Any], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    address, lines, _ = endpoint
    lines += [REQUEST]
    assert run(["debug", "requests", "--tail", "-f", "jsonl", "--http", address]) == 0
    assert json.loads(capsys.readouterr().out) == REQUEST


def test_the_reason_of_the_endpoint_is_shown(
    endpoint: tuple[str, list[Any], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    address, _, _ = endpoint
    assert run(["debug", "requests", "--tail", "--api", "Fetsch", "--http", address]) == 2
    assert "unknown api Fetsch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "pass --tail"),
        (["--tail", "-n", "0"], "must be at least 1"),
        (["--tail", "--http", "localhost"], "is not HOST:PORT"),
        (["--tail", "--http", "localhost:99999"], "is not HOST:PORT"),
        (["--tail", "--http", "127.0.0.1:1"], "no HTTP endpoint at 127.0.0.1:1"),
    ],
)
def test_a_command_that_cannot_work_says_why(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["debug", "requests", *words]) != 0
    assert text in capsys.readouterr().err


def test_the_environment_names_the_endpoint(
    endpoint: tuple[str, list[Any], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, lines, _ = endpoint
    lines.append(REQUEST)
    monkeypatch.setenv("LAKELOG_HTTP", address)
    assert run(["debug", "requests", "--tail", "-n", "1", "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == REQUEST
