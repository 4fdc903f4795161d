"""Sockets of the real network."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from lakelog.runtime.aio import AsyncioNet, TcpListener

_MIB = 1 << 20


@pytest.fixture
def listener() -> Iterator[TcpListener]:
    loop = asyncio.new_event_loop()
    listener = AsyncioNet(loop).listen("127.0.0.1", 0, backlog=1)
    yield listener
    listener.close()
    loop.close()


def _accept(listener: TcpListener) -> socket.socket:
    while True:
        with suppress(BlockingIOError):
            accepted = listener.accept()
            assert isinstance(accepted, socket.socket)
            return accepted


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_outgoing_connection_sends_small_requests_at_once(host: str) -> None:
    async def scenario() -> None:
        net = AsyncioNet(asyncio.get_running_loop())
        listener = net.listen("127.0.0.1", 0, backlog=1)
        port = listener.address[1]
        with closing(listener), closing(await net.connect(host, port, timeout_s=60.0)) as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert not sock.getblocking()

    asyncio.run(scenario())


def test_a_refused_connection_says_why() -> None:
    async def scenario() -> None:
        net = AsyncioNet(asyncio.get_running_loop())
        with closing(socket.socket()) as bound:
            bound.bind(("127.0.0.1", 0))
            with pytest.raises(ConnectionRefusedError) as caught:
                await net.connect(*bound.getsockname(), timeout_s=60.0)
        assert caught.value.strerror == "Connection refused"

    asyncio.run(scenario())


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the kernel has no such bound")
def test_the_kernel_keeps_little_for_a_peer_that_does_not_read(listener: TcpListener) -> None:
    with closing(socket.socket()) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(listener.address)
        with closing(_accept(listener)) as accepted:
            taken, chunk = 0, bytes(64 << 10)
            with suppress(BlockingIOError):
                while taken < 8 * _MIB:
                    taken += accepted.send(chunk)
    assert taken <= _MIB, "about 4 MiB without TCP_NOTSENT_LOWAT"
