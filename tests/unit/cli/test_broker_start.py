from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.cli.broker_start import (
    BrokerArguments,
    advertised,
    listen_address,
    load_config,
    parse_arguments,
    run_broker,
    with_arguments,
)
from lakelog.cli.commands import dev
from lakelog.cli.failures import CliError
from lakelog.cli.options import Verbosity
from unit.cli.command_model import commands


def test_the_options_of_serve_are_parsed() -> None:
    words = "--data d --listen 127.0.0.1:0 --set a=1 --set b=2 --advertise=X=h:1 --node-id 3 -v"
    assert parse_arguments(words.split()) == BrokerArguments(
        data="d",
        listen="127.0.0.1:0",
        node_id="3",
        settings=["a=1", "b=2"],
        advertise=["X=h:1"],
        verbose=1,
    )


@pytest.mark.parametrize(
    "words", ["--data", "--data --set a=1", "--data a --data b", "x", "--dat a", "--workers 2"]
)
def test_other_words_are_rejected(words: str) -> None:
    with pytest.raises(CliError) as error:
        parse_arguments(words.split())
    assert (error.value.code, error.value.hint) == ("LL0902", "lakelog serve --help")


def test_set_goes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.retention.ms=1000\nnum.partitions = 4\n")
    arguments = BrokerArguments(properties=str(file), settings=("num.partitions=7",))
    config = load_config(arguments)
    assert config.get_int("num.partitions") == 7
    assert config.get_int("log.retention.ms") == 1000


def test_unknown_keys_are_named_in_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    load_config(BrokerArguments(settings=("num.partitons=3",)))
    assert "num.partitons" in caplog.text
    assert "did you mean num.partitions?" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (BrokerArguments(settings=("log.retention.ms=x",)), "LL0501", "log.retention.ms=x"),
        (BrokerArguments(settings=("novalue",)), "LL0902", "novalue"),
        (BrokerArguments(data="d", listen="0.0.0.0:9092"), "LL0402", "0.0.0.0"),
        (BrokerArguments(data="d", metadata="zookeeper://a:1"), "LL0902", "no valid chroot"),
        (BrokerArguments(data="d", metadata="zookeeper://a:x/y"), "LL0902", "'a:x'"),
        (BrokerArguments(data="d", metadata="etcd://a"), "LL0902", "zookeeper://"),
        (BrokerArguments(data="d", metadata=""), "LL0902", "--metadata"),
        (
            BrokerArguments(data="d", settings=("lakelog.metadata.store=etcd://a",)),
            "LL0501",
            "lakelog.metadata.store etcd://a is not",
        ),
        (
            BrokerArguments(data="d", settings=("listeners=PLAINTEXT://:9092",)),
            "LL0402",
            "every interface",
        ),
        (BrokerArguments(data="d", listen="9092"), "LL0902", "--listen 9092"),
        (BrokerArguments(data="d", listen="localhost:http"), "LL0902", "--listen"),
    ],
)
def test_what_cannot_be_served_is_refused(
    arguments: BrokerArguments, code: str, words: str
) -> None:
    with pytest.raises(CliError) as caught:
        run_broker(arguments)
    assert caught.value.code == code
    assert words in caught.value.message


def test_settings_take_durations_and_sizes(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.retention.hours=2d\nlog.segment.bytes=512MiB\n")
    arguments = BrokerArguments(properties=str(file), settings=("log.retention.ms=1h30m",))
    config = load_config(arguments)
    assert config.get_int("log.retention.ms") == 5_400_000
    assert config.get_int("log.retention.hours") == 48
    assert config.get_int("log.segment.bytes") == 512 << 20
    file.write_text("log.retention.hours=90m\n")
    with pytest.raises(CliError, match=r"log\.retention\.hours=90m: not a whole number of hours"):
        load_config(arguments)


def test_a_listener_that_others_can_reach_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    arguments = BrokerArguments(listen="0.0.0.0:9092", http="[::]:9404", insecure=True)
    config = load_config(arguments)
    assert listen_address(arguments, config) == "0.0.0.0:9092"
    (line,) = caplog.records
    assert (line.event, line.levelname) == ("listener_open", "WARNING")  # type: ignore[attr-defined]
    assert line.fields == {"host": "0.0.0.0", "option": "--listen"}  # type: ignore[attr-defined]


def test_a_listener_on_loopback_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    arguments = BrokerArguments(listen="127.0.0.1:9092", insecure=True)
    listen_address(arguments, load_config(arguments))
    assert caplog.records == []


@pytest.mark.parametrize(
    ("command", "words", "hint"),
    [
        ("serve", {"listen": "127.0.0.1:{taken}"}, "use --listen to set another address"),
        ("serve", {"http": "127.0.0.1:{taken}"}, "use --http to set another address"),
        ("dev", {"port": "{taken}"}, "use --port to set another port"),
    ],
)
def test_an_address_in_use_has_a_code_and_the_option_of_its_command(
    tmp_path: Path, command: str, words: dict[str, str], hint: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        tokens = ["--data", str(tmp_path)]
        given = {"listen": "127.0.0.1:0", **words} if command == "serve" else words
        for name, value in given.items():
            tokens += [f"--{name}", value.format(taken=port)]
        declared = commands()[command]
        with pytest.raises(CliError) as caught:
            declared.function(**declared.parse(tokens))
    assert (caught.value.code, caught.value.hint) == ("LL0702", hint)


def test_dev_does_not_name_an_option_that_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(CliError) as caught:
        dev.dev(data=str(tmp_path), port=0, http="0.0.0.0:0", verbosity=Verbosity())
    assert caught.value.code == "LL0402"
    assert "lakelog serve --insecure" in caught.value.hint
    assert "--listen" not in caught.value.hint


@pytest.mark.parametrize("port", [-1, 65_536])
def test_dev_names_its_own_option_for_a_port_that_is_none(port: int) -> None:
    with pytest.raises(CliError, match=f"^--port {port} is not a port$"):
        dev.dev(port=port, verbosity=Verbosity())


@pytest.mark.parametrize("host", ["127.evil.example", "localhost.example", "::1234", "127.0.0.1.x"])
def test_a_name_that_begins_like_loopback_is_not_loopback(host: str) -> None:
    arguments = BrokerArguments(listen=f"[{host}]:9092")
    with pytest.raises(CliError, match="other hosts can reach it"):
        listen_address(arguments, load_config(arguments))


@pytest.mark.parametrize("address", ["192.0.2.1:9092", "nowhere.invalid:9092"])
def test_an_address_that_is_not_this_hosts_has_a_code(tmp_path: Path, address: str) -> None:
    with pytest.raises(CliError, match="cannot listen on") as caught:
        run_broker(BrokerArguments(data=str(tmp_path), listen=address, insecure=True))
    assert (caught.value.code, caught.value.hint) == (
        "LL0704",
        "use --listen to set another address",
    )


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_folder_that_cannot_be_one_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    folder = f"{tmp_path}/file{below}"
    with pytest.raises(CliError, match=f"the data folder {folder} cannot be used") as caught:
        run_broker(BrokerArguments(data=folder, listen="127.0.0.1:0"))
    assert caught.value.code == "LL0703"
    assert "--data" in caught.value.hint


def test_the_command_line_advertises_before_the_file() -> None:
    config, _ = BrokerConfig.from_mapping(
        {"advertised.listeners": "PLAINTEXT://a:1", "listeners": "PLAINTEXT://127.0.0.1:9092"}
    )
    assert advertised(BrokerArguments(), config) == {"PLAINTEXT": ("a", 1)}
    told = advertised(BrokerArguments(advertise=("plaintext=b:2",)), config)
    assert told == {"PLAINTEXT": ("b", 2)}
    with pytest.raises(CliError):
        advertised(BrokerArguments(advertise=("b:2",)), config)


def test_options_override_settings_of_the_file() -> None:
    config, _ = BrokerConfig.from_mapping({"log.dirs": "/a", "broker.id": "3"})
    given = with_arguments(config, Path("/b"), "[::1]:0", 5)
    assert (given.data_directory, given.node_id) == ("/b", 5)
    (endpoint,) = given.listeners
    assert (endpoint.name, endpoint.host, endpoint.port) == ("PLAINTEXT", "::1", 0)
    default = with_arguments(config, Path("/a"), "", 3)
    assert default.static == {"log.dirs": "/a", "broker.id": "3", "node.id": "3"}


def test_only_a_listener_can_be_advertised() -> None:
    listeners = "INSIDE://127.0.0.1:9092,OUTSIDE://127.0.0.1:9093"
    config, _ = BrokerConfig.from_mapping({"listeners": listeners})
    assert advertised(BrokerArguments(advertise=("outside=b:2",)), config) == {"OUTSIDE": ("b", 2)}
    with pytest.raises(CliError, match="'PLAINTEXT=b:2' names an unknown listener") as caught:
        advertised(BrokerArguments(advertise=("PLAINTEXT=b:2",)), config)
    assert caught.value.code == "LL0902"
    assert "INSIDE, OUTSIDE" in caught.value.hint
    alone = BrokerArguments(listen="127.0.0.1:0", advertise=("OUTSIDE=b:2",))
    with pytest.raises(CliError, match="names an unknown listener") as caught:
        advertised(alone, config)
    assert "PLAINTEXT" in caught.value.hint


def test_advertised_names_must_be_listeners_unless_listen_replaces_them() -> None:
    config, _ = BrokerConfig.from_mapping(
        {"listeners": "A://127.0.0.1:9092", "advertised.listeners": "A://a:1,B://b:2"}
    )
    with pytest.raises(CliError, match=r"advertised\.listeners names the unknown listener B"):
        advertised(BrokerArguments(), config)
    assert advertised(BrokerArguments(listen="127.0.0.1:0"), config) == {}
