"""The pages of the HTTP endpoint: metrics, health, version, and current requests."""

from __future__ import annotations

import asyncio
import json
import platform
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from http import HTTPStatus

from lakelog import __version__
from lakelog.metrics.exposition import CONTENT_TYPE
from lakelog.protocol.registry import APIS
from lakelog.server.monitoring.collect import overview
from lakelog.server.monitoring.detail import compat, detail
from lakelog.server.monitoring.http import JSON, Page, Request, Response
from lakelog.server.monitoring.readiness import Check
from lakelog.server.monitoring.sources import Sources
from lakelog.server.monitoring.tail import TAILS_MAX, RequestTail

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
