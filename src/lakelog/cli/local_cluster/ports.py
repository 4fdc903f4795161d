"""Ports on this host that no other process takes before a server binds them."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

_NOT_EPHEMERAL = range(20_000, 32_000)
"""No system gives these to outgoing connections: Linux begins at 32768, others at 49152."""


def reserve(host: str, port: int) -> socket.socket:
    """Return a socket that is bound and never listens; port 0 takes a free one.

    A server may bind the port too, with SO_REUSEADDR (socket(7)), and the system gives it to no
    other process meanwhile. Raises `OSError`, and `OverflowError` for a number that is no port.
    """
    reserved = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, port))
    except (OSError, OverflowError):
        reserved.close()
        raise
    return reserved


def port_of(reserved: socket.socket) -> int:
    """Return the port of a reservation."""
    port: int = reserved.getsockname()[1]
    return port


@contextmanager
def reserved_ports(host: str, first: int, count: int) -> Iterator[list[int]]:
    """Reserve ports within the block: from `first` on, or free ones for 0. Raises as `reserve`."""
    with ExitStack() as stack:
        numbers = range(first, first + count) if first else [0] * count
        yield [port_of(stack.enter_context(reserve(host, port))) for port in numbers]


def free_ports(host: str, count: int) -> list[int]:
    """Return ports that no process has and that the system gives to none by itself.

    For servers that do not bind with SO_REUSEADDR, such as ZooKeeper: a reserved port is refused to
    them. Raises `OSError` if there are not so many.
    """
    ports: list[int] = []
    untried = random.SystemRandom().sample(_NOT_EPHEMERAL, len(_NOT_EPHEMERAL))
    while len(ports) < count:
        if not untried:
            raise OSError(f"fewer than {count} ports of {_NOT_EPHEMERAL} are free")
        with suppress(OSError), closing(socket.socket()) as server:
            server.bind((host, port := untried.pop()))
            ports.append(port)
    return ports
