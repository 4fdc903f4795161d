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
