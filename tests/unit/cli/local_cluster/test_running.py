from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.cli.broker_start import BrokerArguments, parse_arguments
from lakelog.cli.failures import CliError
from lakelog.cli.local_cluster.ensemble import ZooKeeperEnsemble
from lakelog.cli.local_cluster.reservations import ClusterFolder
from lakelog.cli.local_cluster.running import (
    ClusterArguments,
    banner,
    broker_specs,
    check_store,
    run_cluster,
    run_workers,
    worker_line,
    worker_specs,
)
from lakelog.cli.local_cluster.supervisor import BrokerSpec


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


_FACTORS = (
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
)


def workers(
    arguments: BrokerArguments, values: dict[str, str] | None = None, listen: str = "127.0.0.1:9092"
) -> list[BrokerArguments]:
    config, _ = BrokerConfig.from_mapping(values or {})
    specs = worker_specs(arguments, config, ClusterFolder(Path("/d")), 4, listen, [9092, 9093])
    return [parse_arguments([*spec.arguments]) for spec in specs]


def test_each_worker_has_an_id_a_folder_and_ports_of_its_own() -> None:
    given = BrokerArguments(
        http="127.0.0.1:9404",
        advertise=("PLAINTEXT=h:19092",),
        properties="p",
        insecure=True,
        verbose=1,
        settings=("a=1",),
    )
    first, second = workers(given, listen="0.0.0.0:9092")
    assert (first.node_id, first.data, first.listen) == ("4", "/d/broker-4", "0.0.0.0:9092")
    assert (second.node_id, second.data, second.listen) == ("5", "/d/broker-5", "0.0.0.0:9093")
    assert (first.http, second.http) == ("127.0.0.1:9404", "127.0.0.1:9405")
    assert second.advertise == ["PLAINTEXT=h:19093"]
    assert first.metadata == second.metadata == "sqlite:/d/metadata.db"
    assert second.settings == [*_FACTORS, "a=1"]
    assert (second.properties, second.insecure, second.verbose) == ("p", True, 1)


def test_internal_topics_have_one_replica_unless_another_number_is_set() -> None:
    (first, _) = workers(BrokerArguments(), {"offsets.topic.replication.factor": "2"})
    assert tuple(first.settings) == _FACTORS[1:]


def test_workers_may_be_part_of_a_larger_cluster() -> None:
    (first, _) = workers(BrokerArguments(metadata="zookeeper://h:2181/c"))
    assert first.metadata == "zookeeper://h:2181/c"
    assert first.settings == ()


@pytest.mark.parametrize(
    ("count", "arguments", "code", "words"),
    [
        (0, {}, "LL0902", "--workers 0"),
        (65, {}, "LL0902", "--workers 65"),
        (2, {"listen": "127.0.0.1:65535"}, "LL0902", "no room for 2 workers"),
        (2, {"listen": "10.0.0.1:9092"}, "LL0402", "10.0.0.1"),
        (2, {"settings": ("listeners=PLAINTEXT://127.0.0.1:1",)}, "LL0902", "divide"),
        (2, {"settings": ("num.partitions=x",)}, "LL0501", "num.partitions=x"),
    ],
)
def test_workers_with_wrong_arguments_start_no_process(
    tmp_path: Path, count: int, arguments: dict[str, object], code: str, words: str
) -> None:
    given = BrokerArguments(data=str(tmp_path / "d"), **arguments)  # type: ignore[arg-type]
    with pytest.raises(CliError, match=words) as caught:
        run_workers(given, count)
    assert caught.value.code == code
    assert not (tmp_path / "d").exists()


def test_a_port_of_a_worker_in_use_is_an_error_before_any_process_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CliError, match="in use") as caught:
            run_workers(BrokerArguments(data=str(tmp_path / "d"), listen=listen), 1)
    assert caught.value.code == "LL0702"


def test_data_of_a_worker_that_would_not_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broker-3").mkdir()
    with pytest.raises(CliError, match="has data of a worker") as caught:
        run_workers(BrokerArguments(data=str(tmp_path), listen="127.0.0.1:0"), 2)
    assert caught.value.hint == "pass --workers 3"


def test_a_line_names_its_worker(capsys: pytest.CaptureFixture[str]) -> None:
    worker_line(2, b'{"ts": "now"}')
    worker_line(2, b"now INFO ready\x1b")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == '{"worker": 2, "ts": "now"}'
    assert lines[1].startswith("worker 2 | now INFO ready")
    assert "\x1b" not in lines[1]
