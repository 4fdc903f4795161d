"""The folder and the ports of a local cluster."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lakelog.cli.failures import CliError
from lakelog.cli.local_cluster import reservations
from lakelog.cli.local_cluster.reservations import (
    ClusterFolder,
    free_ports,
    port_of,
    reserve,
    reserved_ports,
)


def code_of(path: Path) -> str:
    with pytest.raises(CliError) as caught, ClusterFolder(path).held():
        pass
    return caught.value.code


def test_one_process_holds_the_folder(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "new" / "folder")
    with folder.held():
        assert code_of(folder.path) == "LL0701"
    with folder.held():
        pass
    assert folder.broker(2) == folder.path / "broker-2"


def test_the_folder_of_a_single_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    assert code_of(tmp_path) == "LL0703"


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert code_of(tmp_path / "file") == "LL0703"


def test_the_brokers_of_a_folder_are_known_by_their_folders(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    for name in ("broker-2", "broker-10", "broker-x", "zookeeper"):
        (tmp_path / name).mkdir()
    assert folder.node_ids() == {2, 10}


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
        monkeypatch.setattr(reservations, "_NOT_EPHEMERAL", range(taken, taken + 1))
        with pytest.raises(OSError, match="fewer than 1 ports"):
            free_ports(HOST, 1)
    assert free_ports(HOST, 1) == [taken]
