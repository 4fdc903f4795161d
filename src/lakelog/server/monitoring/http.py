"""A small HTTP/1.1 server for a few fixed pages: one request a connection, GET and HEAD only.

It does not know the pages. Everything that a peer can use is bounded: connections, the size of a
request's head, the time to send it, the time to read the response. A peer on this host must name
this host: a web page elsewhere may have its own name resolve to 127.0.0.1 (DNS rebinding), but the
browser then sends that name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from http import HTTPStatus
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from lakelog.base.events import event

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 32
HEAD_SIZE_MAX = 8 * 1024
_NO_HTTP = "not an HTTP/1.1 request"
HEAD_TIMEOUT_S = 10.0
SEND_TIMEOUT_S = 30.0
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


class Request(NamedTuple):
    """`query` has the last value of each name."""

    path: str
    query: Mapping[str, str]
    is_local: bool
    """Whether the peer is on this host."""


class Response(NamedTuple):
    """`parts` are sent after the body as they are produced, until the peer disconnects."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    parts: AsyncGenerator[bytes, None] | None = None


Page = Callable[[Request], Awaitable[Response]]


class _Rejected(Exception):  # noqa: N818 - an answer
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class HttpServer:
    """From `start` to `stop`; `pages` are by path."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None] | None] = set()
        self._receiving: dict[asyncio.Task[None], None] = {}
        """Connections whose request is incomplete, oldest first."""

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return the bound address. Raises `OSError` if the address cannot be bound."""
        self._server = await asyncio.start_server(
            self._on_client, host, port, limit=HEAD_SIZE_MAX, backlog=CONNECTIONS_MAX
        )
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    async def stop(self) -> None:
        """Close the address and all connections."""
        if self._server is not None:
            self._server.close()
        tasks = [task for task in self._serving if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._serving) >= CONNECTIONS_MAX and not self._free_capacity():
            writer.transport.abort()
            return
        self._serving.add(task)
        self._receiving[task] = None
        # With a limit of 0, `drain` waits until the socket has taken everything, so that the time
        # limit of sending holds for the last bytes, too.
        writer.transport.set_write_buffer_limits(0)
        try:
            await self._handle_request(reader, writer)
        except (OSError, EOFError, TimeoutError):
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()  # the server stops, and nothing waits for this
        finally:
            self._serving.discard(task)
            self._receiving.pop(task, None)
            writer.close()

    def _free_capacity(self) -> bool:
        """Evict the connection with the oldest incomplete request, if any."""
        for task in self._receiving:
            del self._receiving[task]
            self._serving.discard(task)
            task.cancel()
            return True
        return False

    async def _handle_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with_body = True
        try:
            method, request = await _receive(reader, writer)
            self._receiving.pop(asyncio.current_task(), None)  # type: ignore[arg-type]
            with_body = method != "HEAD"
            response = await self._answer(request)
        except _Rejected as rejected:
            response = Response(f"{rejected}\n".encode(), status=rejected.status)
        await _send(writer, _head(response) + (response.body if with_body else b""))
        if with_body and response.parts is not None:
            await _stream(reader, writer, response.parts)

    async def _answer(self, request: Request) -> Response:
        page = self._pages.get(request.path)
        if page is None:
            paths = " ".join(sorted(self._pages))
            raise _Rejected(HTTPStatus.NOT_FOUND, f"page not found; available pages: {paths}")
        try:
            return await page(request)
        except Exception:
            logger.exception(
                "%s failed", request.path, extra=event("page_failed", path=request.path)
            )
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            return Response(b"internal error; see the log of the broker\n", status=status)


async def _receive(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[str, Request]:
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            head = await reader.readexactly(1)
            if not head.isalpha():  # a Kafka client, or TLS: they would wait for an answer
                raise _Rejected(HTTPStatus.BAD_REQUEST, _NO_HTTP)
            head += await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        raise _Rejected(status, f"request headers exceed {HEAD_SIZE_MAX} bytes") from error
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise _Rejected(HTTPStatus.BAD_REQUEST, _NO_HTTP)
    if words[0] not in ("GET", "HEAD"):
        raise _Rejected(HTTPStatus.METHOD_NOT_ALLOWED, "method not allowed; use GET or HEAD")
    hosts = [value.strip() for name, _, value in map(_header, lines) if name.lower() == "host"]
    _check_host(writer.get_extra_info("sockname")[0], hosts)
    is_local = ip_address(writer.get_extra_info("peername")[0]).is_loopback
    return words[0], _request(words[1], is_local)


def _header(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def _request(target: str, is_local: bool) -> Request:
    try:
        split = urlsplit(target)
        query = {k: v[-1] for k, v in parse_qs(split.query, keep_blank_values=True).items()}
    except ValueError as error:
        raise _Rejected(HTTPStatus.BAD_REQUEST, "invalid request target") from error
    return Request(split.path, query, is_local)


def _check_host(local: str, hosts: list[str]) -> None:
    if len(hosts) > 1:
        raise _Rejected(HTTPStatus.BAD_REQUEST, "more than one Host header")
    if not ip_address(local).is_loopback:
        return  # the operator has opened the endpoint to others, under any names
    name = hosts[0].rpartition(":")[0] or hosts[0] if hosts else ""
    name = hosts[0] if hosts and hosts[0].endswith("]") else name
    if not _is_loopback(name.strip("[]")):
        raise _Rejected(HTTPStatus.FORBIDDEN, "Host header not allowed; use localhost or 127.0.0.1")


def _is_loopback(name: str) -> bool:
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _head(response: Response) -> bytes:
    status = response.status
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {response.content_type}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    if response.parts is None:
        lines.append(f"Content-Length: {len(response.body)}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    async with asyncio.timeout(SEND_TIMEOUT_S):
        await writer.drain()


async def _stream(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, parts: AsyncGenerator[bytes, None]
) -> None:
    """Return when the peer closes its side, even while there is nothing to send."""

    async def send_all() -> None:
        async for part in parts:
            await _send(writer, part)

    sending = asyncio.ensure_future(send_all())
    leaving = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError, TimeoutError):
            await sending
        await parts.aclose()
