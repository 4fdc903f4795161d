"""kazoo's own waits, which are capped, and the items of its transactions."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from kazoo.exceptions import (
    BadVersionError,
    InvalidACLError,
    NodeExistsError,
    RolledBackError,
    RuntimeInconsistency,
)

from lakelog.metadata.errors import MetadataUnavailable
from lakelog.metadata.store.zookeeper.kazoo_session import KazooSession, refusal_of
from lakelog.metadata.store.zookeeper.session import Reason, Refusal


def test_the_refused_operation_is_found_among_its_neighbours() -> None:
    assert refusal_of(["/x", object()]) is None
    assert refusal_of([NodeExistsError(), RuntimeInconsistency()]) == Refusal(0, Reason.EXISTS)
    items = [RolledBackError(), RolledBackError(), BadVersionError()]
    assert refusal_of(items) == Refusal(2, Reason.VERSION)
    assert refusal_of([RolledBackError(), InvalidACLError()]) == Refusal(1, Reason.OTHER)


def test_a_server_that_accepts_and_never_answers_does_not_take_a_session_timeout() -> None:
    """The second server is reached while a session would still be alive."""

    async def scenario(silent: socket.socket, second: socket.socket) -> float:
        ports = (silent.getsockname()[1], second.getsockname()[1])
        session = KazooSession(tuple(f"127.0.0.1:{port}" for port in ports), 6.0)
        loop = asyncio.get_running_loop()
        begun = time.monotonic()
        opening = asyncio.ensure_future(session.open(lambda: None))
        accepted = [loop.run_in_executor(None, listener.accept) for listener in (silent, second)]
        connections = [connection for connection, _ in await asyncio.gather(*accepted)]
        duration_s = time.monotonic() - begun
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await session.close()
        for connection in connections:
            connection.close()
        return duration_s

    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        socket.create_server(("127.0.0.1", 0)) as second,
    ):
        assert asyncio.run(scenario(silent, second)) < 3.0


def test_no_server_at_all_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    session = KazooSession((f"127.0.0.1:{port}",), 0.3)
    with pytest.raises(MetadataUnavailable, match=f"127.0.0.1:{port} answers"):
        asyncio.run(session.open(lambda: None))
