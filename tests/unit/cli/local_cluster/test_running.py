from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lakelog.cli.broker_start import parse_arguments
from lakelog.cli.failures import CliError
from lakelog.cli.local_cluster.broker import BrokerSpec
from lakelog.cli.local_cluster.ensemble import ZooKeeperEnsemble
from lakelog.cli.local_cluster.folder import ClusterFolder
from lakelog.cli.local_cluster.running import (
    ClusterArguments,
    banner,
    broker_specs,
    check_store,
    run_cluster,
)


def specs(
    arguments: ClusterArguments, ensemble: ZooKeeperEnsemble | None = None
) -> list[BrokerSpec]:
    ports = range(9092, 9092 + arguments.brokers)
    return broker_specs(arguments, ClusterFolder(Path("/c")), list(ports), ensemble)


def test_each_broker_has_an_id_a_folder_and_a_port_of_its_own() -> None:
    arguments = ClusterArguments(
        brokers=3, data=Path("/c"), port=9092, settings=("a=1",), http="127.0.0.1:9404", quiet=True
    )
    parsed = [parse_arguments([*spec.arguments]) for spec in specs(arguments)]
    found = [(each.node_id, each.data, each.listen, each.http) for each in parsed]
    assert found == [
        ("1", "/c/broker-1", "127.0.0.1:9092", "127.0.0.1:9404"),
        ("2", "/c/broker-2", "127.0.0.1:9093", "127.0.0.1:9405"),
        ("3", "/c/broker-3", "127.0.0.1:9094", "127.0.0.1:9406"),
    ]
    first = parsed[0]
    assert first.metadata == "sqlite:/c/metadata.db"
    assert first.settings == ["default.replication.factor=3", "min.insync.replicas=2", "a=1"]
    assert first.quiet


def test_two_brokers_have_two_replicas_and_no_minimum() -> None:
    spec = specs(ClusterArguments(brokers=2, data=Path("/c"), port=9092))[0]
    parsed = parse_arguments([*spec.arguments])
    assert parsed.settings == ["default.replication.factor=2"]


def test_brokers_find_their_metadata_in_the_ensemble(tmp_path: Path) -> None:
    ensemble = ZooKeeperEnsemble(tmp_path)
    arguments = ClusterArguments(brokers=1, data=tmp_path, port=9092, zookeeper=True)
    parsed = parse_arguments([*specs(arguments, ensemble)[0].arguments])
    assert parsed.metadata == f"zookeeper://{','.join(ensemble.servers)}/lakelog"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"brokers": 0}, "LL0902", "--brokers 0"),
        ({"brokers": 21}, "LL0902", "--brokers 21"),
        ({"brokers": 3, "port": 65_534}, "LL0902", "no room for 3 brokers"),
        ({"brokers": 3, "settings": ("num.partitions=x",)}, "LL0501", "num.partitions=x"),
        ({"brokers": 3, "http": "10.0.0.1:80"}, "LL0402", "10.0.0.1"),
    ],
)
def test_a_cluster_with_wrong_arguments_starts_no_process(
    tmp_path: Path, arguments: dict[str, object], code: str, words: str
) -> None:
    given = {"data": tmp_path / "c", "port": 0} | arguments
    with pytest.raises(CliError, match=words) as caught:
        run_cluster(ClusterArguments(**given))  # type: ignore[arg-type]
    assert caught.value.code == code
    assert not (tmp_path / "c").exists()


def test_a_port_in_use_is_an_error_before_any_process_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CliError, match=f"ports {port} to {port}: .* in use") as caught:
            run_cluster(ClusterArguments(brokers=1, data=tmp_path / "c", port=port))
    assert caught.value.code == "LL0702"
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("missing", ["kazoo", "pyspark", "java"])
def test_missing_parts_of_zookeeper_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    for module in ("running", "ensemble"):
        monkeypatch.setattr(
            f"lakelog.cli.local_cluster.{module}.find_spec",
            lambda name: None if name == missing else _Spec(),
        )
    arguments = ClusterArguments(brokers=1, data=tmp_path / "c", port=0, zookeeper=True)
    with pytest.raises(CliError) as caught:
        run_cluster(arguments)
    assert caught.value.code == ("LL0802" if missing == "java" else "LL0801")
    assert missing in f"{caught.value.message} {caught.value.hint}".lower()


class _Spec:
    origin = "/somewhere/pyspark/__init__.py"


def test_a_cluster_keeps_its_kind_of_metadata_store(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    folder.metadata.touch()
    check_store(folder, zookeeper=False)
    with pytest.raises(CliError, match=r"in metadata\.db, not in ZooKeeper"):
        check_store(folder, zookeeper=True)
    folder.metadata.unlink()
    folder.zookeeper.mkdir()
    check_store(folder, zookeeper=True)
    with pytest.raises(CliError, match="is in ZooKeeper"):
        check_store(folder, zookeeper=False)


def test_the_banner_names_addresses_processes_and_the_controller() -> None:
    arguments = ClusterArguments(brokers=2, data=Path("d"), port=9100)
    brokers = [BrokerSpec(1, "127.0.0.1:9100", ()), BrokerSpec(2, "127.0.0.1:9101", ())]
    lines = banner(arguments, brokers, {1: 71, 2: 72}, 2).splitlines()
    assert [line.split() for line in lines[4:7]] == [
        ["1", "127.0.0.1:9100", "71", "broker"],
        ["2", "127.0.0.1:9101", "72", "controller,", "broker"],
        ["metadata:", "metadata.db"],
    ]
    assert any("-b 127.0.0.1:9100,127.0.0.1:9101 " in line for line in lines)
    assert any(line.strip().startswith("kill -9 72") for line in lines)


def test_the_banner_names_the_ensemble_and_leaves_the_default_port_out() -> None:
    arguments = ClusterArguments(brokers=1, data=Path("d"), port=9092)
    text = banner(arguments, [BrokerSpec(1, "127.0.0.1:9092", ())], {1: 71}, 1, ["h:1", "h:2"])
    assert "a cluster of 1 broker is ready" in text
    assert "metadata: ZooKeeper on h:1, h:2" in text
    assert " -b " not in text
