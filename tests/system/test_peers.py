"""Two broker processes with one metadata file, on the real network."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from waiting import eventually

ANSWERED = 'lakelog_request_duration_seconds_count{api="DescribeCluster"}'


def member(folder: Path, node_id: int, *arguments: str) -> BrokerProcess:
    """Return a broker of the cluster that has its metadata in this folder."""
    shared = ("--node-id", str(node_id), "--metadata", f"sqlite:{folder / 'metadata.db'}")
    return BrokerProcess(folder / f"broker{node_id}", arguments=(*shared, *arguments))


def events(broker: BrokerProcess, prefix: str = "peer_") -> list[str]:
    """Return the events about peers, or others of the prefix, in order."""
    return [line["event"] for line in broker.lines() if line["event"].startswith(prefix)]


def metrics(broker: BrokerProcess) -> dict[str, float]:
    """Return the samples of /metrics by name and labels."""
    with urllib.request.urlopen(f"http://{broker.http_address}/metrics", timeout=60) as page:
        samples = (line.decode().split() for line in page if not line.startswith(b"#"))
        return {name: float(number) for *_, name, number in samples}


def peers(broker: BrokerProcess) -> dict[str, float]:
    """Return the states of the peers that /metrics shows."""
    return {
        name.partition('"')[2].partition('"')[0]: number
        for name, number in metrics(broker).items()
        if name.startswith("lakelog_peers{") and number
    }


def becomes(broker: BrokerProcess, state: str) -> None:
    """Wait until log and metrics show its one peer in this state."""
    eventually(lambda: events(broker)[-1:] == [f"peer_{state}"] and peers(broker) == {state: 1.0})


@pytest.fixture
def second(tmp_path: Path) -> Iterator[BrokerProcess]:
    with member(tmp_path, 2) as broker:
        yield broker


@pytest.fixture
def first(tmp_path: Path, second: BrokerProcess) -> Iterator[BrokerProcess]:
    with member(tmp_path, 1, "--http", "127.0.0.1:0") as broker:
        yield broker


def test_a_broker_follows_the_deaths_and_returns_of_another(
    first: BrokerProcess, second: BrokerProcess
) -> None:
    becomes(first, "connected")
    second.kill()
    becomes(first, "unreachable")
    second.restart()
    becomes(first, "connected")
    second.pause()
    becomes(first, "unreachable")
    second.resume()
    becomes(first, "connected")
    first.stop()


def test_a_broker_of_another_cluster_is_refused(
    tmp_path: Path, first: BrokerProcess, second: BrokerProcess
) -> None:
    becomes(first, "connected")
    second.kill()
    with BrokerProcess(tmp_path / "stranger", second.port, arguments=("--node-id", "2")):
        becomes(first, "refused")
        first.stop()


def test_an_advertised_address_at_which_the_broker_answers_leaves_no_line(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    port = broker.port = broker._reserved_port()
    broker.arguments = (
        *("--advertise", f"PLAINTEXT=localhost:{port}"),
        *("--http", "127.0.0.1:0"),
    )
    with broker:
        eventually(lambda: metrics(broker).get(ANSWERED))
        broker.stop()
        assert events(broker, "advertised_") == []


def test_an_advertised_address_without_a_listener_is_reported(tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        arguments = ("--advertise", f"PLAINTEXT={address}")
        with BrokerProcess(tmp_path / "data", arguments=arguments) as broker:
            eventually(lambda: events(broker, "advertised_") == ["advertised_address_unreachable"])
            assert f"{address}: Connection refused" in broker.log()


def test_an_advertised_address_of_another_broker_is_a_warning(
    tmp_path: Path, second: BrokerProcess
) -> None:
    arguments = ("--advertise", f"PLAINTEXT={second.bootstrap}")
    with BrokerProcess(tmp_path / "data", arguments=arguments) as broker:
        eventually(lambda: events(broker, "advertised_") == ["advertised_address_wrong"])
