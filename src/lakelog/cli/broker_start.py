"""Starts a broker from command-line arguments; shared by `serve` and `dev`."""

from __future__ import annotations

import errno
import gc
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from lakelog.base.config.quantities import plain_value
from lakelog.base.events import event
from lakelog.cli.declaration import Argument, Arguments, Command
from lakelog.cli.failures import CliError
from lakelog.cli.log_lines import start_logging
from lakelog.cli.options import Verbosity
from lakelog.cli.settings import parse_setting

if TYPE_CHECKING:
    from lakelog.base.config.broker_config import BrokerConfig
    from lakelog.metadata.store.zookeeper.address import EnsembleAddress
    from lakelog.server.options import ReadyInfo, ServeOptions

DEFAULT_LISTEN = "127.0.0.1:9092"
PORT_MAX = 65_535
DEV_OPEN_HINT = "use a loopback address, or lakelog serve --insecure for others"
"""The advice if other hosts could reach an address of `lakelog dev`."""
_DEFAULT_NODE_ID = 1
_LOOPBACK = re.compile(r"127(\.\d{1,3}){1,3}|localhost|::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerArguments(Verbosity):
    """The arguments of `serve` and `dev`. `settings` are KEY=VALUE, `advertise` NAME=HOST:PORT.

    address_option: the option of the command that sets the address of the broker. open_hint: the
    advice if other hosts can reach an address.
    """

    data: str | None = None
    listen: str | None = None
    properties: str | None = None
    node_id: str | None = None
    metadata: str | None = None
    http: str | None = None
    log_format: str | None = None
    advertise: Sequence[str] = ()
    settings: Sequence[str] = ()
    insecure: bool = False
    address_option: str = "--listen"
    open_hint: str = "listen on 127.0.0.1, or pass --insecure if the network is trusted"

    arguments: ClassVar[Arguments] = {
        **Verbosity.arguments,
        "data": "Folder for all data of the broker (default: log.dirs of the properties).",
        "listen": Argument(
            "HOST:PORT to listen on (default: `listeners` of the properties, or 127.0.0.1:9092). "
            "Port 0 selects a free port.",
            metavar="HOST:PORT",
        ),
        "advertise": Argument(
            "NAME=HOST:PORT that clients connect to, for a listener name such as PLAINTEXT; may "
            "be repeated. By default the address that a client has used, which is right without "
            "NAT.",
            metavar="NAME=HOST:PORT",
        ),
        "properties": "A server.properties file with Kafka's keys.",
        "settings": Argument(
            "KEY=VALUE with Kafka's keys; may be repeated. Overrides the file and values stored "
            "by `lakelog config set`.",
            "--set",
            metavar="KEY=VALUE",
        ),
        "node_id": "Id of this broker (default: node.id of the properties, or 1).",
        "metadata": "The metadata store that several brokers share: they form one cluster. "
        "sqlite:PATH is a file, for brokers of this host; "
        "zookeeper://HOST:PORT[,HOST:PORT...]/CHROOT is an ensemble (default: a file in the data "
        "folder, for this broker alone).",
        "http": Argument(
            "HOST:PORT for metrics and health over HTTP: /metrics, /metrics/detail, /healthz, "
            "/readyz, /version (default: no HTTP).",
            metavar="HOST:PORT",
        ),
        "log_format": Argument(
            "Format of log lines: text or json (default auto: text on a terminal, otherwise json).",
            metavar="auto|text|json",
        ),
        "insecure": "Allow --listen and --http on addresses that other hosts can reach. There is "
        "no authentication.",
    }


def parse_arguments(tokens: Sequence[str]) -> BrokerArguments:
    """Return the arguments of `lakelog serve` for one broker. Raises `CliError` LL0902."""
    command = Command("serve", run_broker)
    command.add_group("arguments", BrokerArguments)
    arguments = command.parse(tokens)["arguments"]
    assert isinstance(arguments, BrokerArguments)
    return arguments


def run_broker(arguments: BrokerArguments, ready: Callable[[ReadyInfo], None] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status.

    Garbage collection is off during the start: it would take a twelfth of the time and find
    nothing, because imported modules stay. `serve` collects once, later. Raises `CliError` if the
    broker cannot start.
    """
    gc.disable()
    try:
        return _run_broker(arguments, ready)
    finally:
        gc.enable()


def _run_broker(arguments: BrokerArguments, ready: Callable[[ReadyInfo], None] | None) -> int:
    level = logging.DEBUG if arguments.verbose else logging.INFO
    start_logging(logging.WARNING if arguments.quiet else level, arguments.log_format)
    config = load_config(arguments)
    listen = listen_address(arguments, config)
    from lakelog.metadata.errors import RegistrationLost
    from lakelog.server.options import ServeOptions, StartError, StoppedError
    from lakelog.server.serving import serve

    data, node_id = data_folder(arguments, config), first_node_id(arguments, config)
    config = with_arguments(config, data, listen, node_id, metadata=arguments.metadata)
    options = ServeOptions(
        data=data,
        config=config,
        listen=listen,
        advertise=advertised(arguments, config),
        node_id=node_id,
        http=http_address(arguments),
        metadata=_metadata_place(config, arguments),
        ready=ready or _nothing_to_add,
    )
    try:
        serve(options)
    except StartError as error:
        raise _cannot_start(error, options, arguments) from error
    except StoppedError as error:
        if isinstance(error.__cause__, RegistrationLost):
            raise CliError("LL0710", str(error)) from error
        raise _metadata_refused(error) from error
    return 0


def _nothing_to_add(info: ReadyInfo) -> None:
    """The callback without a banner: the server has logged that it is ready."""


def _cannot_start(error: Exception, options: ServeOptions, arguments: BrokerArguments) -> CliError:
    from lakelog.base.errors import ErrorCode, KafkaError
    from lakelog.metadata.errors import (
        BrokerIdInUse,
        MetadataCorrupt,
        MetadataDenied,
        MetadataMissing,
    )
    from lakelog.server.options import ListenError
    from lakelog.storage.errors import DirectoryInUse

    cause, data = error.__cause__, options.data
    if isinstance(cause, DirectoryInUse | BrokerIdInUse):
        return CliError("LL0701", str(error))
    if isinstance(error, ListenError):
        option = "--http" if error.for_http else arguments.address_option
        what = "port" if option == "--port" else "address"
        in_use = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
        return CliError(
            "LL0702" if in_use else "LL0704", str(error), f"use {option} to set another {what}"
        )
    if isinstance(cause, OSError) and cause.filename:
        file = Path(os.fsdecode(cause.filename))
        suffix = "" if file == data else f" ({file})"
        return CliError(
            "LL0703",
            f"the data folder {data} cannot be used: {cause.strerror}{suffix}",
            "use --data to set another folder",
        )
    if options.is_clustered and isinstance(
        cause, MetadataCorrupt | MetadataMissing | MetadataDenied
    ):
        return _metadata_refused(error)
    if isinstance(cause, KafkaError) and cause.code is ErrorCode.UNSUPPORTED_VERSION:
        return _metadata_refused(error)
    return CliError("LL0703", str(error))


def _metadata_refused(error: Exception) -> CliError:
    return CliError("LL0707", str(error))


def load_config(arguments: BrokerArguments) -> BrokerConfig:
    """Return the settings of the file, overridden by `--set`; warn about unused ones.

    Raises `CliError`: LL0501 for an invalid setting, and for a file that cannot be read.
    """
    from lakelog.base.config.broker_config import BrokerConfig
    from lakelog.base.config.key import ConfigError

    values: dict[str, str] = {}
    if arguments.properties is not None:
        values.update(_read_properties(Path(arguments.properties)))
    given = _settings(arguments)
    values.update(given)
    try:
        config, warnings = BrokerConfig.from_mapping(values)
    except ConfigError as error:
        raise CliError("LL0501", str(error)) from error
    for warning in warnings:
        logging.getLogger(__name__).warning(
            "configuration: %s", warning, extra=event("config_ignored")
        )
    return config.with_forced(given)


def _settings(arguments: BrokerArguments) -> dict[str, str]:
    given: dict[str, str] = {}
    for text in arguments.settings:
        key, value = parse_setting(text, "--set")
        given[key] = value
    return given


def _read_properties(path: Path) -> dict[str, str]:
    from lakelog.base.config.properties import parse_properties

    try:
        values = parse_properties(path.read_text(encoding="utf-8"))
        return {key: plain_value(key, value) for key, value in values.items()}
    except ValueError as error:
        raise CliError("LL0501", f"{path}: {error}") from error


def with_arguments(
    config: BrokerConfig, data: Path, listen: str, node_id: int, *, metadata: str | None = None
) -> BrokerConfig:
    """Return the settings with the command line's values, so that descriptions show them."""
    values = {"log.dirs": str(data), "node.id": str(node_id)}
    if config.is_set("broker.id"):
        values["broker.id"] = str(node_id)
    if listen:
        values["listeners"] = f"PLAINTEXT://{listen}"
    if metadata is not None:
        values["lakelog.metadata.store"] = metadata
    return config.with_static(values)


def data_folder(arguments: BrokerArguments, config: BrokerConfig) -> Path:
    """Return the absolute data folder. Raises `CliError` if there is none, or more than one."""
    folder = arguments.data or config.data_directory
    if not folder:
        raise CliError("LL0902", "no data folder", "specify --data DIR")
    if "," in folder:
        raise CliError("LL0902", f"--data {folder}: only one folder is supported, without a comma")
    return Path(folder).absolute()


def listen_address(arguments: BrokerArguments, config: BrokerConfig) -> str:
    """Return HOST:PORT, or an empty text to use the listeners of the properties.

    Raises `CliError` for a malformed address, and without --insecure for an address that other
    hosts can reach.
    """
    if arguments.listen or not config.is_set("listeners"):
        listen = arguments.listen or DEFAULT_LISTEN
        option, hosts = "--listen", [split_address(listen, "--listen")[0]]
    else:
        listen, option = "", "listeners"
        hosts = [endpoint.host for endpoint in config.listeners]
    for host in hosts:
        _check_reach(arguments, option, host)
    return listen


def http_address(arguments: BrokerArguments) -> str:
    """Return HOST:PORT or an empty text. Raises `CliError` like `listen_address`."""
    if arguments.http is None:
        return ""
    _check_reach(arguments, "--http", split_address(arguments.http, "--http")[0])
    return arguments.http


def _check_reach(arguments: BrokerArguments, option: str, host: str) -> None:
    if _LOOPBACK.fullmatch(host):
        return
    interface = host or "every interface"
    text = f"{option} {interface}: other hosts can reach it, and there is no authentication"
    if not arguments.insecure:
        raise CliError("LL0402", text, arguments.open_hint)
    logging.getLogger(__name__).warning(
        "%s", text, extra=event("listener_open", code="LL0402", host=host, option=option)
    )


def advertised(arguments: BrokerArguments, config: BrokerConfig) -> dict[str, tuple[str, int]]:
    """Return the advertised addresses by listener name; the command line overrides the file.

    If --listen replaces the listeners of the file, their advertised addresses are ignored. Raises
    `CliError` for an unknown listener.
    """
    given: dict[str, tuple[str, int]] = {}
    listeners = _listener_names(arguments, config)
    hint = f"the listeners are: {', '.join(listeners)}"
    for end in config.advertised_listeners:
        if end.name in listeners:
            given[end.name] = (end.host, end.port)
        elif not arguments.listen:
            text = f"advertised.listeners names the unknown listener {end.name}"
            raise CliError("LL0501", text, hint)
    for text in arguments.advertise:
        name, equals, address = text.partition("=")
        if not equals or not name:
            raise CliError("LL0902", f"--advertise {text!r} is not NAME=HOST:PORT")
        if name.upper() not in listeners:
            raise CliError("LL0902", f"--advertise {text!r} names an unknown listener", hint)
        given[name.upper()] = split_address(address, "--advertise")
    return given


def _listener_names(arguments: BrokerArguments, config: BrokerConfig) -> list[str]:
    if arguments.listen or not config.is_set("listeners"):
        return ["PLAINTEXT"]
    return [endpoint.name for endpoint in config.listeners]


def split_address(text: str, option: str) -> tuple[str, int]:
    """Return host (without brackets) and port of HOST:PORT. Raises `CliError`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise CliError("LL0902", f"{option} {text} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _metadata_place(
    config: BrokerConfig, arguments: BrokerArguments
) -> Path | EnsembleAddress | None:
    """Return the place of a metadata store that brokers share, or None for the broker's own."""
    text = config.get("lakelog.metadata.store")
    if text is None:
        return None
    assert isinstance(text, str)
    of_file = arguments.metadata is None
    code, option = ("LL0501", "lakelog.metadata.store") if of_file else ("LL0902", "--metadata")
    return secured(metadata_place(text, code, option), config)


def secured(location: Path | EnsembleAddress, config: BrokerConfig) -> Path | EnsembleAddress:
    """Return the place with the settings for a secured ensemble. Raises `CliError`."""
    from lakelog.base.config.key import ConfigError
    from lakelog.server.metadata_store import security_of

    if isinstance(location, Path):
        return location
    try:
        return location._replace(security=security_of(config))
    except ConfigError as error:
        raise CliError("LL0501", str(error)) from error


def metadata_place(text: str, code: str, option: str) -> Path | EnsembleAddress:
    """Return the place in the value of an option. Raises `CliError` with this code."""
    from lakelog.metadata.store.zookeeper.address import SCHEME, parse_address

    if text.startswith(SCHEME):
        try:
            return parse_address(text)
        except ValueError as error:
            raise CliError(code, f"{option}: {error}") from error
    kind, colon, path = text.partition(":")
    if kind != "sqlite" or not colon or not path:
        raise CliError(code, f"{option} {text} is not sqlite:PATH or zookeeper://...")
    file = Path(path).absolute()
    if file.is_dir():
        raise CliError(code, f"{option} {text}: {file} is a folder, not a file")
    if not file.parent.is_dir():
        raise CliError(code, f"{option} {text}: there is no folder {file.parent}")
    return file


def first_node_id(arguments: BrokerArguments, config: BrokerConfig) -> int:
    """Return the node id of the broker, or of the first worker. Raises `CliError`."""
    if arguments.node_id is not None:
        if not arguments.node_id.isdecimal() or int(arguments.node_id) >= 2**31:
            raise CliError("LL0902", f"--node-id {arguments.node_id} is not a valid node id")
        return int(arguments.node_id)
    return config.node_id if config.node_id >= 0 else _DEFAULT_NODE_ID
