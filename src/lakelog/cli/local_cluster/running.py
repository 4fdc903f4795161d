"""`lakelog dev --brokers N`: the processes of a cluster, their lines, and a banner."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lakelog import __version__
from lakelog.base.errors import KafkaError
from lakelog.cli.broker_start import (
    DEV_OPEN_HINT,
    PORT_MAX,
    BrokerArguments,
    http_address,
    load_config,
)
from lakelog.cli.failures import CliError
from lakelog.cli.local_cluster.broker import BrokerSpec
from lakelog.cli.local_cluster.ensemble import EnsembleError, ZooKeeperEnsemble
from lakelog.cli.local_cluster.folder import ClusterFolder
from lakelog.cli.local_cluster.ports import reserved_ports
from lakelog.cli.local_cluster.supervisor import Supervisor
from lakelog.cli.render import note, printable

BROKERS_MAX = 20
_HOST = "127.0.0.1"
_CHROOT = "lakelog"
_REPLICATION_FACTOR_MAX = 3
_DEFAULT_PORT = 9092
_CHECK_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterArguments:
    """The arguments of `dev` with --brokers. `settings` are KEY=VALUE of every broker.

    port, http: of the first broker; the next ones have the following ports.
    """

    brokers: int
    data: Path
    port: int
    settings: Sequence[str] = ()
    http: str | None = None
    zookeeper: bool = False
    verbose: int = 0
    quiet: bool = False


def run_cluster(arguments: ClusterArguments) -> int:
    """Run a cluster until SIGTERM or SIGINT; return the exit status.

    Raises `CliError` if it cannot start.
    """
    _check(arguments)
    folder = ClusterFolder(arguments.data.absolute())
    with ExitStack() as stack:
        ports = stack.enter_context(_ports(arguments))
        check_store(folder, zookeeper=arguments.zookeeper)
        stack.enter_context(folder.held())
        ensemble = stack.enter_context(_ensemble(folder)) if arguments.zookeeper else None
        brokers = broker_specs(arguments, folder, ports, ensemble)
        lines = _Lines(quiet=arguments.quiet)

        def is_complete(pids: Mapping[int, int]) -> bool:
            controller = _controller_of_complete(brokers)
            if controller is None:
                return False
            servers = ensemble.servers if ensemble is not None else ()
            text = banner(arguments, brokers, pids, controller, servers)
            note(text, quiet=arguments.quiet)
            return True

        supervisor = Supervisor(
            brokers, ensemble, is_complete=is_complete, report=lines.report, line=lines.of_broker
        )
        asyncio.run(supervisor.run())
    return 0


def _check(arguments: ClusterArguments) -> None:
    """Raise `CliError` for arguments that every broker would reject."""
    if not 1 <= arguments.brokers <= BROKERS_MAX:
        raise CliError(
            "LL0902",
            f"--brokers {arguments.brokers} is not a number of brokers",
            f"use a number from 1 to {BROKERS_MAX}",
        )
    last = arguments.port + arguments.brokers - 1
    if arguments.port and last > PORT_MAX:
        text = f"--port {arguments.port} leaves no room for {arguments.brokers} brokers"
        raise CliError("LL0902", text, f"the last broker would have port {last}")
    parsed = BrokerArguments(
        settings=tuple(arguments.settings), http=arguments.http, open_hint=DEV_OPEN_HINT
    )
    load_config(parsed)
    http_address(parsed)
    if arguments.zookeeper and find_spec("kazoo") is None:
        raise CliError(
            "LL0801",
            "--zookeeper needs kazoo, which is not installed",
            "pip install '.[spark,zookeeper]'",
        )


def check_store(folder: ClusterFolder, *, zookeeper: bool) -> None:
    """Raise `CliError` if the metadata of the cluster is in ZooKeeper, or in a file, unlike now."""
    if zookeeper and folder.metadata.exists():
        text = f"the metadata of the cluster in {folder.path} is in metadata.db, not in ZooKeeper"
        raise CliError("LL0703", text, "leave --zookeeper out, or use --data to set another folder")
    if not zookeeper and folder.zookeeper.exists():
        text = f"the metadata of the cluster in {folder.path} is in ZooKeeper"
        raise CliError("LL0703", text, "pass --zookeeper, or use --data to set another folder")


@contextmanager
def _ports(arguments: ClusterArguments) -> Iterator[list[int]]:
    with ExitStack() as stack:
        try:
            reservation = reserved_ports(_HOST, arguments.port, arguments.brokers)
            ports = stack.enter_context(reservation)
        except OSError as error:
            last = arguments.port + arguments.brokers - 1
            text = f"cannot listen on {_HOST}, ports {arguments.port} to {last}: {error.strerror}"
            raise CliError("LL0702", text, "use --port to set another first port") from error
        yield ports


@contextmanager
def _ensemble(folder: ClusterFolder) -> Iterator[ZooKeeperEnsemble]:
    codes = {"java": "LL0802", "pyspark": "LL0801", "": "LL0706"}
    with ExitStack() as stack:
        try:
            yield stack.enter_context(ZooKeeperEnsemble(folder.zookeeper))
        except EnsembleError as error:
            raise CliError(codes[error.needs], str(error)) from error


def broker_specs(
    arguments: ClusterArguments,
    folder: ClusterFolder,
    ports: Sequence[int],
    ensemble: ZooKeeperEnsemble | None,
) -> list[BrokerSpec]:
    """Return the brokers 1 to N, with the settings of a cluster unless the user sets others."""
    factor = min(arguments.brokers, _REPLICATION_FACTOR_MAX)
    defaults = [f"default.replication.factor={factor}"]
    if factor == _REPLICATION_FACTOR_MAX:
        defaults.append("min.insync.replicas=2")
    metadata = f"sqlite:{folder.metadata}"
    if ensemble is not None:
        metadata = f"zookeeper://{','.join(ensemble.servers)}/{_CHROOT}"
    specs = []
    for node_id, port in enumerate(ports, 1):
        address = f"{_HOST}:{port}"
        words = ["--node-id", str(node_id), "--listen", address, "--metadata", metadata]
        words += ["--data", str(folder.broker(node_id)), "--log-format", "text"]
        words += [f"--set={setting}" for setting in (*defaults, *arguments.settings)]
        if arguments.http is not None:
            words += ["--http", _http_of(arguments.http, node_id)]
        words += ["-v"] * min(arguments.verbose, 1) + ["-q"] * arguments.quiet
        specs.append(BrokerSpec(node_id, address, words))
    return specs


def _http_of(first: str, node_id: int) -> str:
    host, _, port = first.rpartition(":")
    return f"{host}:{int(port) + node_id - 1 if int(port) else 0}"


def _controller_of_complete(brokers: Sequence[BrokerSpec]) -> int | None:
    """Return the controller's node id if all brokers serve, otherwise None."""
    from lakelog.client.admin import Admin

    try:
        with Admin(brokers[0].address, timeout_s=_CHECK_TIMEOUT_S) as admin:
            cluster = admin.brokers.describe()
    except KafkaError:
        return None
    online = {broker.node_id for broker in cluster.brokers if not broker.is_fenced}
    is_complete = online >= {spec.node_id for spec in brokers}
    return cluster.controller_id if is_complete and cluster.controller_id in online else None


class _Lines:
    """Lines on stderr: of this process, and of the brokers with their node ids."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def report(self, text: str) -> None:
        note(f"cluster  | {text}", quiet=self._quiet)

    def of_broker(self, node_id: int, line: bytes) -> None:
        text = printable(line.decode("utf-8", "backslashreplace"))
        sys.stderr.write(f"broker {node_id} | {text}\n")
        sys.stderr.flush()


def banner(
    arguments: ClusterArguments,
    brokers: Sequence[BrokerSpec],
    pids: Mapping[int, int],
    controller: int,
    zookeeper: Sequence[str] = (),
) -> str:
    """Return the banner that is printed when the cluster is complete.

    pids: of the brokers' processes, by node id. zookeeper: HOST:PORT of the servers, if any.
    """
    bootstrap = ",".join(spec.address for spec in brokers)
    where = "" if arguments.port == _DEFAULT_PORT else f" -b {bootstrap}"
    width = max(len(spec.address) for spec in brokers)
    rows = [
        f"  {spec.node_id:>6}  {spec.address:<{width}}  {pids[spec.node_id]:>7}  "
        f"{'controller, broker' if spec.node_id == controller else 'broker'}"
        for spec in brokers
    ]
    store = f"ZooKeeper on {', '.join(zookeeper)}" if zookeeper else "metadata.db"
    count = f"{len(brokers)} brokers" if len(brokers) > 1 else "1 broker"
    return "\n".join(
        [
            f"\nlakelog {__version__}: a cluster of {count} is ready, data in {arguments.data}",
            "",
            f"  {'broker':>6}  {'address':<{width}}  {'pid':>7}  role",
            *rows,
            f"  metadata: {store}",
            "",
            f"  lakelog topic create demo{where} --partitions 3",
            f"  echo hello | lakelog produce demo{where}",
            f"  lakelog cluster health{where}",
            f"  kill -9 {pids[controller]}    # the controller; another broker takes over",
            "",
            f"Any Kafka client works with bootstrap servers {bootstrap}.",
            "Press ^C to stop the cluster.\n",
        ]
    )
