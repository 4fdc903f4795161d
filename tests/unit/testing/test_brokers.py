"""Test brokers before their processes run; tests/system starts processes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lakelog.base.config.key import ConfigError
from lakelog.testing.brokers import (
    Broker,
    BrokerError,
    Setting,
    _cluster_settings,
    _environment,
    broker,
    cluster,
)


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Broker]:
    with closing(Broker(tmp_path / "data", tmp_path, 0, {})) as made:
        yield made


def test_a_broker_that_does_not_run_says_how_to_start_it(stopped: Broker) -> None:
    calls = (
        stopped.stop,
        stopped.kill,
        lambda: stopped.pid,
        lambda: stopped.create_topic("orders"),
        lambda: stopped.delete_topic("orders"),
    )
    for call in calls:
        with pytest.raises(BrokerError, match=r"does not run; start\(\) starts it"):
            call()


def test_a_bad_value_of_a_topic_is_named_before_the_broker_is_asked(stopped: Broker) -> None:
    with pytest.raises(ConfigError, match="7x"):
        stopped.create_topic("orders", config={"retention.ms": "7x"})


def test_the_port_is_reserved_until_the_block_ends(tmp_path: Path) -> None:
    with closing(Broker(tmp_path / "data", tmp_path, 0, {})) as stopped:
        address = ("127.0.0.1", stopped.port)
        assert stopped.bootstrap_servers == f"127.0.0.1:{stopped.port}"
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(address)
        with socket.create_server(address):
            pass  # the broker itself sets SO_REUSEADDR
    with socket.socket() as stranger:
        stranger.bind(address)


def test_a_port_that_another_process_listens_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} .* in use; port=0 takes a free one"):
            Broker(tmp_path / "data", tmp_path, port, {})


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range(tmp_path: Path, port: int) -> None:
    with pytest.raises(BrokerError, match=rf"port {port} .*0-65535"):
        Broker(tmp_path / "data", tmp_path, port, {})


def test_a_topic_name_in_place_of_a_list() -> None:
    with pytest.raises(TypeError, match=r"pass a list: \['orders'\]"), broker("orders"):
        pass


def test_settings_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    settings: dict[str, Setting] = {
        "auto.create.topics.enable": True,
        "num.partitions": 3,
        "log.dirs": "a",
    }
    with closing(Broker(tmp_path / "data", tmp_path, 0, settings)) as stopped:
        assert stopped._settings == (
            "auto.create.topics.enable=true",
            "num.partitions=3",
            "log.dirs=a",
        )


def test_a_tracer_of_the_test_is_not_started_in_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COVERAGE_PROCESS_START", "pyproject.toml")
    monkeypatch.setenv("COV_CORE_SOURCE", "orders")
    monkeypatch.setenv("ORDERS", "3")
    environment = _environment()
    assert environment["ORDERS"] == "3"
    assert environment["NO_COLOR"] == "1"
    assert not [name for name in environment if name.startswith("COV")]


def test_a_cluster_without_brokers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 broker"), cluster(brokers=0):
        pass


def test_a_string_is_no_list_of_topics() -> None:
    with pytest.raises(TypeError, match="pass a list"), cluster("orders"):
        pass


@pytest.mark.parametrize(("brokers", "factor", "minimum"), [(1, 1, 1), (2, 2, 1), (5, 3, 2)])
def test_topics_have_up_to_three_replicas(brokers: int, factor: int, minimum: int) -> None:
    found = _cluster_settings(brokers, Path("/c"))
    assert found["default.replication.factor"] == factor
    assert found["min.insync.replicas"] == minimum
    assert found["lakelog.metadata.store"] == "sqlite:/c/metadata.db"
