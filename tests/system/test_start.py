"""A broker that cannot do its work says why in one line and does not start."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from wire_client import WireClient, batch_of, create_topic, fetch, produce


def _refusal(broker: BrokerProcess) -> str:
    """Its only error line, after it has ended by itself with a status that says so."""
    broker.launch()
    assert broker.wait() != 0
    log = broker.log()
    assert "Traceback" not in log
    assert "ready on" not in log
    lines = [line for line in log.splitlines() if re.search(r"\berror\b", line, re.IGNORECASE)]
    assert len(lines) == 1, log
    return lines[0]


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith((".lock", "metadata.db"))
    }


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a broker that was stopped cleanly, with one record in it."""
    with BrokerProcess(tmp_path_factory.mktemp("stopped") / "data") as broker:
        with WireClient(broker.bootstrap) as client:
            create_topic(client, "kept")
            produce(client, "kept", batch_of(b"precious"))
        broker.stop()
    return broker.data


@pytest.fixture
def data(tmp_path: Path, stopped: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(stopped, tmp_path / "data")


def test_a_bad_value(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", settings={"log.segment.bytes": "abc"})
    line = _refusal(broker)
    assert "log.segment.bytes" in line
    assert "abc" in line


def test_a_value_out_of_range(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", settings={"num.partitions": "0"})
    assert "num.partitions" in _refusal(broker)


def test_an_unknown_key_is_named_in_a_warning(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings={"log.segment.bites": "5"}) as broker:
        warnings = [line for line in broker.log().splitlines() if '"warning"' in line]
        assert any("log.segment.bites" in line for line in warnings), broker.log()
        broker.stop()


def test_a_folder_in_use(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as first:
        second = BrokerProcess(tmp_path / "data")
        second.log_path = tmp_path / "second.stderr"
        line = _refusal(second)
        assert str(tmp_path / "data") in line
        assert "another" in line
        with WireClient(first.bootstrap) as client:
            create_topic(client, "undisturbed")
        first.stop()


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = _refusal(BrokerProcess(tmp_path / "data", port))
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line


@pytest.mark.parametrize("damage", ["missing", "garbage", "empty", "cut"])
def test_metadata_missing_or_corrupt(data: Path, damage: str) -> None:
    broker = BrokerProcess(data)
    before = _files(broker.data)
    store = broker.data / "metadata.db"
    content = store.read_bytes()
    aside = {path: path.read_bytes() for path in broker.data.glob("metadata.db*")}
    for path in aside:
        path.unlink()
    if damage != "missing":
        damaged = {"garbage": b"not a database" * 500, "empty": b"", "cut": content[:1000]}
        store.write_bytes(damaged[damage])

    assert "metadata" in _refusal(broker)

    assert _files(broker.data) == before
    for path, kept in aside.items():
        path.write_bytes(kept)
    with broker:
        with WireClient(broker.bootstrap) as client:
            assert b"precious" in bytes(fetch(client, "kept", 0).records)
        broker.stop()


def test_a_folder_of_another_node(data: Path) -> None:
    assert "node" in _refusal(BrokerProcess(data, arguments=("--node-id", "7")))


def test_stored_files_are_accessible_to_their_user_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker, WireClient(broker.bootstrap) as client:
        create_topic(client, "secrets")
        produce(client, "secrets", batch_of(b"a password"))
    # The broker was killed: all its files are there, and none is renamed during the listing.
    found = {path: path.stat().st_mode & 0o777 for path in (data, *data.rglob("*"))}
    names = {path.name for path in found}
    assert {"metadata.db", "metadata.db-wal", "metadata.db-end", ".lock", "secrets-0"} <= names
    open_to_others = {path: oct(mode) for path, mode in found.items() if mode & 0o077}
    assert open_to_others == {}
