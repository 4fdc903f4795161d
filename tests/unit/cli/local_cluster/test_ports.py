from __future__ import annotations

import socket

import pytest

from lakelog.cli.local_cluster import ports
from lakelog.cli.local_cluster.ports import free_ports, port_of, reserve, reserved_ports

HOST = "127.0.0.1"


def test_a_server_may_bind_a_reserved_port() -> None:
    with reserve(HOST, 0) as reserved, socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((HOST, port_of(reserved)))
        server.listen()


def test_free_ports_differ() -> None:
    with reserved_ports(HOST, 0, 3) as found:
        assert len(set(found)) == 3


def test_a_row_of_ports_is_free_as_a_whole_or_refused() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"), reserved_ports(HOST, port, 1):
            pass
    with reserved_ports(HOST, port, 1) as found:
        assert found == [port]


def test_free_ports_are_below_the_ports_of_outgoing_connections() -> None:
    found = free_ports(HOST, 9)
    assert len(set(found)) == 9
    with reserve(HOST, 0) as ephemeral:
        assert max(found) < port_of(ephemeral)


def test_a_taken_port_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with reserve(HOST, 0) as reserved:
        taken = port_of(reserved)
        monkeypatch.setattr(ports, "_NOT_EPHEMERAL", range(taken, taken + 1))
        with pytest.raises(OSError, match="fewer than 1 ports"):
            free_ports(HOST, 1)
    assert free_ports(HOST, 1) == [taken]
