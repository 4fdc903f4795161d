from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.cli.broker_start import BrokerArguments, parse_arguments
from lakelog.cli.failures import CliError
from lakelog.cli.local_cluster.folder import ClusterFolder
from lakelog.cli.local_cluster.workers import run_workers, worker_line, worker_specs

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


def test_a_port_in_use_is_an_error_before_any_process_starts(tmp_path: Path) -> None:
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
