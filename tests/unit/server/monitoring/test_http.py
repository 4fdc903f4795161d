"""The HTTP endpoint over real sockets, with pages that the test makes up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from http import HTTPStatus
from typing import Any

import pytest

from lakelog.server.monitoring import http
from lakelog.server.monitoring.http import HttpServer, Request, Response

GOOD = b"GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = b"x" * (8 << 20)


class Site:
    address: tuple[str, int]

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.closed = asyncio.Event()
        self.server = HttpServer(
            {"/page": self.page, "/bug": self.bug, "/tail": self.tail, "/large": self.large}
        )

    async def all_served(self) -> None:
        serving = [task for task in self.server._serving if task is not None]
        if serving:
            await asyncio.wait(serving)

    async def page(self, request: Request) -> Response:
        self.asked.append(request)
        return Response(b"the page\n")

    async def bug(self, request: Request) -> Response:
        raise ZeroDivisionError

    async def large(self, request: Request) -> Response:
        return Response(LARGE)

    async def tail(self, request: Request) -> Response:
        return Response(b"", parts=self.parts())

    async def parts(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"first\n"
            await asyncio.Event().wait()
        finally:
            self.closed.set()

    async def ask(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Status, head and body of the answer; status 0 if there is none."""
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(request)
            answer = await reader.read()
        except ConnectionError:
            return 0, b"", b""
        finally:
            writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]) if head else 0, head, body


def run(scenario: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        site = Site()
        site.address = await site.server.start("127.0.0.1", 0)
        try:
            await scenario(site)
        finally:
            await site.server.stop()

    asyncio.run(asyncio.wait_for(whole(), 120))


def test_a_page_its_query_and_its_head_alone() -> None:
    async def scenario(site: Site) -> None:
        status, _, body = await site.ask(GOOD.replace(b"/page", b"/page?a=1&b&a=%202"))
        assert (status, body) == (200, b"the page\n")
        assert site.asked[-1] == Request("/page", {"a": " 2", "b": ""}, True)
        status, head, body = await site.ask(GOOD.replace(b"GET", b"HEAD"))
        assert (status, body) == (200, b"")
        assert b"Content-Length: 9" in head

    run(scenario)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"GET /page\r\n\r\n", 400),
        (b"GET page HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (GOOD.replace(b"GET", b"POST"), 405),
        (GOOD.replace(b"/page", b"/other"), 404),
        (GOOD.replace(b"/page", b"/bug"), 500),
        (GOOD.replace(b"GET", b"GET " + b"x" * http.HEAD_SIZE_MAX), 431),
        (GOOD.replace(b"\r\n\r\n", b"\r\nHost: localhost\r\n\r\n"), 400),
        (b"GET /page HTTP/1.1\r\n\r\n", 403),
        (GOOD.replace(b"localhost", b"evil.example"), 403),
        (GOOD.replace(b"localhost", b"127.0.0.1.evil.example:9404"), 403),
        (GOOD.replace(b"localhost", b"192.168.0.1"), 403),
        (GOOD.replace(b"localhost", b"127.0.0.1:9404"), 200),
        (GOOD.replace(b"localhost", b"LocalHost:80"), 200),
        (GOOD.replace(b"localhost", b"[::1]:80"), 200),
        (GOOD.replace(b"localhost", b"[::1]"), 200),
        (GOOD[:-2], 0),
    ],
)
def test_responses(request_bytes: bytes, status: int) -> None:
    async def scenario(site: Site) -> None:
        ended = not request_bytes.endswith(b"\r\n\r\n")
        reader, writer = await asyncio.open_connection(*site.address)
        writer.write(request_bytes)
        if ended:
            writer.write_eof()
        answer = await reader.read()
        writer.close()
        assert (int(answer.split()[1]) if answer else 0) == status
        assert (await site.ask(GOOD))[0] == HTTPStatus.OK

    run(scenario)


@pytest.mark.parametrize(
    ("request_bytes", "text"),
    [
        (GOOD.replace(b"GET", b"POST"), b"method not allowed; use GET or HEAD\n"),
        (GOOD.replace(b"GET", b"GET " + b"x" * 8192), b"request headers exceed 8192 bytes\n"),
        (GOOD.replace(b"/page", b"/bug"), b"internal error; see the log of the broker\n"),
        (GOOD.replace(b"/page", b"//["), b"invalid request target\n"),
        (
            GOOD.replace(b"localhost", b"evil.example"),
            b"Host header not allowed; use localhost or 127.0.0.1\n",
        ),
    ],
)
def test_an_error_names_the_cause_and_the_remedy(request_bytes: bytes, text: bytes) -> None:
    async def scenario(site: Site) -> None:
        assert (await site.ask(request_bytes))[2] == text

    run(scenario)


def test_an_unknown_page_names_the_available_ones() -> None:
    async def scenario(site: Site) -> None:
        _, _, body = await site.ask(GOOD.replace(b"/page", b"/other"))
        assert body.startswith(b"page not found; available pages: /bug /")

    run(scenario)


def test_a_peer_that_sends_its_request_slowly_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "HEAD_TIMEOUT_S", 0.01)

    async def scenario(site: Site) -> None:
        assert await site.ask(b"GET /page HTT") == (0, b"", b"")

    run(scenario)


def test_a_peer_that_does_not_read_the_response_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "SEND_TIMEOUT_S", 0.01)

    async def scenario(site: Site) -> None:
        reader, writer = await asyncio.open_connection(*site.address, limit=1024)
        writer.write(GOOD.replace(b"/page", b"/large"))
        begin = await reader.readexactly(512)
        await site.all_served()
        try:
            rest = await reader.read()
        except ConnectionError:
            rest = b""
        assert len(begin) + len(rest) < len(LARGE)
        writer.close()

    run(scenario)


def test_of_a_crowd_few_are_held_and_the_next_is_served_after_it() -> None:
    async def scenario(site: Site) -> None:
        crowd = [await asyncio.open_connection(*site.address) for _ in range(200)]
        closed = [asyncio.ensure_future(reader.read()) for reader, _ in crowd]
        while sum(task.done() for task in closed) < 200 - http.CONNECTIONS_MAX:
            await asyncio.wait(
                [task for task in closed if not task.done()],
                return_when=asyncio.FIRST_COMPLETED,
            )
        assert len(site.server._serving) == http.CONNECTIONS_MAX
        for _, writer in crowd:
            writer.transport.abort()
        await asyncio.gather(*closed, return_exceptions=True)
        await site.all_served()
        assert (await site.ask(GOOD))[0] == HTTPStatus.OK

    run(scenario)


def test_a_page_without_an_end_ends_when_its_reader_goes() -> None:
    async def scenario(site: Site) -> None:
        reader, writer = await asyncio.open_connection(*site.address)
        writer.write(GOOD.replace(b"/page", b"/tail"))
        assert (await reader.readuntil(b"first\n")).endswith(b"\r\n\r\nfirst\n")
        writer.close()
        await site.closed.wait()

    run(scenario)


def test_a_page_without_an_end_ends_with_the_server() -> None:
    async def scenario(site: Site) -> None:
        reader, writer = await asyncio.open_connection(*site.address)
        writer.write(GOOD.replace(b"/page", b"/tail"))
        await reader.readuntil(b"first\n")
        await site.server.stop()
        assert site.closed.is_set()
        writer.close()

    run(scenario)


def test_a_client_of_another_protocol_is_answered_at_once() -> None:
    """A Kafka client waits for the size of a response, and reads HTTP there."""

    async def scenario(site: Site) -> None:
        for first in (b"\0\0\0\x40\0\x12\0\x04", b"\x16\x03\x01"):
            status, _, body = await site.ask(first)
            assert (status, body) == (400, b"not an HTTP/1.1 request\n")

    run(scenario)
