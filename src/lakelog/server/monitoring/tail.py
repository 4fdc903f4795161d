"""Requests as they are answered, for a watcher; without one nothing is kept."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator

from lakelog.runtime.api import Clock
from lakelog.server.requests.metrics import CLIENT_ID_CHARS_MAX, RequestMetrics, RequestNote

TAILS_MAX = 4
_KEPT_MAX = 10_000
_LINES_AT_ONCE = 500


class RequestTail:
    """A watcher, from the first of `lines` until they are closed.

    A watcher that reads more slowly than requests are answered misses some; a line has their
    number. Empty `api` and `client_id` stand for any.
    """

    def __init__(self, clock: Clock, *, api: str = "", client_id: str = "") -> None:
        self._clock = clock
        self._api = api.lower()
        self._client_id = client_id[:CLIENT_ID_CHARS_MAX]
        self._lines: deque[bytes] = deque()
        self._missed = 0
        self._woken = asyncio.Event()

    async def lines(self, requests: RequestMetrics) -> AsyncGenerator[bytes, None]:
        """Yield lines of JSON as bytes, several at once.

        The first line shows that the watcher is registered. The generator ends when it is closed.
        """
        leave = requests.watch(self._note)
        try:
            yield b'{"watching": true}\n'
            while True:
                await self._woken.wait()
                count = min(len(self._lines), _LINES_AT_ONCE)
                lines = [self._lines.popleft() for _ in range(count)]
                if self._missed:
                    lines.append(json.dumps({"missed": self._missed}).encode() + b"\n")
                    self._missed = 0
                if not self._lines:
                    self._woken.clear()
                yield b"".join(lines)
        finally:
            leave()

    def _note(self, note: RequestNote) -> None:
        if self._api and note.api.lower() != self._api:
            return
        if self._client_id and note.client_id != self._client_id:
            return
        if len(self._lines) >= _KEPT_MAX:
            self._missed += 1
            return
        line = {"time_ms": self._clock.wall_ms(), **note._asdict()}
        self._lines.append(json.dumps(line).encode() + b"\n")
        self._woken.set()
