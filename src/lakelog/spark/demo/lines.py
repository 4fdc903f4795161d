"""Lines of a log as records, and a generated log for a demo without a file.

Only `\\n` ends a line, and lines are not normalized: a record's value is the exact bytes of its
line, also `\\r`, NUL or invalid UTF-8. A last line without `\\n` counts as a line.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

_KEY_BYTES_MAX = 255
_SEED = 20150517
_PATHS = (
    "/", "/favicon.ico", "/style.css", "/images/logo.png", "/about", "/blog/commit-logs",
    "/blog/arrow-batches", "/blog/offsets", "/projects/lakelog", "/downloads/lakelog.tar.gz",
    "/search?q=iceberg", "/login", "/robots.txt", "/missing",
)  # fmt: skip
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:124.0) Gecko/20100101 Firefox/124.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15",
    "curl/8.5.0",
    "feedfetcher/2.1 (+http://example.org/bot.html)",
)
_MALFORMED = (b"", b"GET / HTTP/1.0", b'198.51.100.7 - - [bad time] "GET / HTTP/1.1" 200 1 "-" "x"')


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    for line in file:
        yield line.removesuffix(b"\n")


def split_lines(file: BinaryIO, first_bytes: float) -> tuple[Iterator[bytes], Iterator[bytes]]:
    """Return the lines in two parts, to be read in order; the first has about `first_bytes`.

    Raises `OSError`.
    """
    lines = read_lines(file)

    def until_limit() -> Iterator[bytes]:
        taken = 0
        while taken < first_bytes and (line := next(lines, None)) is not None:
            taken += len(line) + 1
            yield line

    return until_limit(), lines


def client_address(line: bytes) -> bytes | None:
    """Return the first word of a line as the key; `None` if it is missing or too long."""
    word, space, _ = line.partition(b" ")
    return word if space and 0 < len(word) <= _KEY_BYTES_MAX else None


def write_generated_log(path: Path, lines: int = 10_000) -> None:
    """Write a plausible access log of three days.

    Clients and paths are distributed unevenly; there are errors and a few malformed lines. The log
    is always the same. Raises `OSError`.
    """
    chance = random.Random(_SEED)
    clients = [f"198.51.{chance.randrange(256)}.{chance.randrange(1, 255)}" for _ in range(400)]
    at = datetime(2026, 5, 17, tzinfo=UTC)
    with path.open("wb") as file:
        for number in range(lines):
            at += timedelta(seconds=chance.expovariate(lines / (3 * 86_400)))
            client = clients[int(len(clients) * chance.random() ** 3)]
            malformed = number % (lines // len(_MALFORMED) + 1) == lines // 10
            line = _MALFORMED[number % len(_MALFORMED)] if malformed else _line(chance, client, at)
            file.write(line + b"\n")


def _line(chance: random.Random, client: str, at: datetime) -> bytes:
    path = _PATHS[int(len(_PATHS) * chance.random() ** 2)]
    status = 404 if path == "/missing" else 500 if chance.random() < 0.01 else 200
    size = str(chance.randrange(200, 250_000)) if status == 200 else "-"
    return (
        f"{client} - - [{at:%d/%b/%Y:%H:%M:%S %z}] "
        f'"GET {path} HTTP/1.1" {status} {size} "-" "{chance.choice(_AGENTS)}"'
    ).encode()
