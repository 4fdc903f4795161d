"""The pages of the HTTP endpoint: metrics, health, version, and current requests.

A watcher gets requests as they are answered; without one nothing is kept.
"""

from __future__ import annotations

import asyncio
import json
import platform
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from http import HTTPStatus

from lakelog import __version__
from lakelog.metrics.exposition import CONTENT_TYPE
from lakelog.protocol.registry import APIS
from lakelog.runtime.api import Clock
from lakelog.server.monitoring.collect import overview
from lakelog.server.monitoring.detail import compat, detail
from lakelog.server.monitoring.http import JSON, Page, Request, Response
from lakelog.server.monitoring.readiness import Check
from lakelog.server.monitoring.sources import Sources
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


_LINES_PER_TURN = 500
"""About a millisecond of work."""


class Pages:
    """The pages of one broker; `checks` returns the current checks of readiness."""

    def __init__(self, sources: Sources, checks: Callable[[], list[Check]]) -> None:
        self._sources = sources
        self._checks = checks
        self._tails = 0

    def by_path(self) -> Mapping[str, Page]:
        """Return the pages by path (docs/monitoring.md)."""
        return {
            "/metrics": self._metrics,
            "/metrics/detail": self._detail,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/version": self._version,
            "/debug/requests": self._debug_requests,
        }

    async def _metrics(self, _: Request) -> Response:
        text = await _text(overview(self._sources, self._checks()))
        if self._sources.broker.config.get_bool("lakelog.metrics.compat"):
            text += await _text(compat(self._sources))
        return Response(text, CONTENT_TYPE)

    async def _detail(self, _: Request) -> Response:
        return Response(await _text(detail(self._sources)), CONTENT_TYPE)

    async def _healthz(self, _: Request) -> Response:
        """Answer, which shows that the loop runs."""
        return _json({"status": "ok"})

    async def _readyz(self, request: Request) -> Response:
        checks = self._checks()
        failing = [_described(check) for check in checks if not check.passes]
        answer: dict[str, object] = {
            "status": "not ready" if failing else "ready",
            "failing": failing,
        }
        if "verbose" in request.query:
            answer["checks"] = [{"passes": check.passes, **_described(check)} for check in checks]
        return _json(answer, HTTPStatus.SERVICE_UNAVAILABLE if failing else HTTPStatus.OK)

    async def _version(self, _: Request) -> Response:
        broker = self._sources.broker
        return _json(
            {
                "version": __version__,
                "python": platform.python_version(),
                "node_id": broker.node_id,
                "cluster_id": broker.cluster_id or None,
            }
        )

    async def _debug_requests(self, request: Request) -> Response:
        """Send requests as they are answered; they name clients, so only to this host."""
        if not request.is_local:
            text = b"only from the broker's own host\n"
            return Response(text, status=HTTPStatus.FORBIDDEN)
        api, client = request.query.get("api", ""), request.query.get("client", "")
        if api and api.lower() not in {entry.name.lower() for entry in APIS.values()}:
            text = f"no API is called {api!r}\n".encode()
            return Response(text, status=HTTPStatus.BAD_REQUEST)
        if self._tails >= TAILS_MAX:
            text = f"{TAILS_MAX} are watching already\n".encode()
            return Response(text, status=HTTPStatus.TOO_MANY_REQUESTS)
        tail = RequestTail(self._sources.broker.clock, api=api, client_id=client)
        return Response(b"", "application/x-ndjson", parts=self._lines(tail))

    async def _lines(self, tail: RequestTail) -> AsyncGenerator[bytes, None]:
        self._tails += 1
        lines = tail.lines(self._sources.broker.requests)
        try:
            async for part in lines:
                yield part
        finally:
            self._tails -= 1
            await lines.aclose()


async def _text(lines: Iterator[str]) -> bytes:
    """Join the lines; the loop has a turn after every few hundred."""
    parts: list[str] = []
    for number, line in enumerate(lines, 1):
        parts.append(line)
        if number % _LINES_PER_TURN == 0:
            await asyncio.sleep(0)
    return "\n".join([*parts, ""]).encode()


def _json(answer: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(json.dumps(answer).encode() + b"\n", JSON, status)


def _described(check: Check) -> dict[str, str]:
    return {"check": check.name, "reason": check.reason}
