"""`lakelog dev --brokers N`, and `lakelog serve --workers N`: brokers that share a data folder.

A worker is a broker in a process of its own, with a node id, a port and a folder of its own.
Clients find the leader of a partition by ordinary metadata, so that the partitions are spread over
the workers. All processes end with this one, however that ends.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lakelog import __version__
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import KafkaError
from lakelog.base.events import event
from lakelog.cli import broker_start
from lakelog.cli.failures import CliError
from lakelog.cli.local_cluster.ensemble import EnsembleError, ZooKeeperEnsemble
from lakelog.cli.local_cluster.reservations import ClusterFolder, reserved_ports
from lakelog.cli.local_cluster.supervisor import BrokerSpec, Supervisor
from lakelog.cli.log_lines import start_logging
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
        ports = stack.enter_context(
            _ports("--port", _HOST, arguments.port, arguments.brokers, "brokers")
        )
        check_store(folder, zookeeper=arguments.zookeeper)
        stack.enter_context(folder.held())
        ensemble = stack.enter_context(_ensemble(folder)) if arguments.zookeeper else None
        brokers = broker_specs(arguments, folder, ports, ensemble)

        def is_complete(pids: Mapping[int, int]) -> bool:
            controller = _controller_of_complete(brokers)
            if controller is None:
                return False
            servers = ensemble.servers if ensemble is not None else ()
            text = banner(arguments, brokers, pids, controller, servers)
            note(text, quiet=arguments.quiet)
            return True

        supervisor = Supervisor(
            brokers,
            ensemble,
            is_complete=is_complete,
            report=lambda text: note(f"cluster  | {text}", quiet=arguments.quiet),
            line=_broker_line,
        )
        asyncio.run(supervisor.run())
    return 0


def _check(arguments: ClusterArguments) -> None:
    """Raise `CliError` for arguments that every broker would reject."""
    _check_count("brokers", arguments.brokers, BROKERS_MAX)
    parsed = broker_start.BrokerArguments(
        settings=tuple(arguments.settings),
        http=arguments.http,
        open_hint=broker_start.DEV_OPEN_HINT,
    )
    broker_start.load_config(parsed)
    broker_start.http_address(parsed)
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


def _check_count(what: str, count: int, most: int) -> None:
    if not 1 <= count <= most:
        text = f"--{what} {count} is not a number of {what}"
        raise CliError("LL0902", text, f"use a number from 1 to {most}")


@contextmanager
def _ports(option: str, host: str, first: int, count: int, processes: str) -> Iterator[list[int]]:
    """Reserve the ports of processes, from `first` on, or free ones for 0. Raises `CliError`."""
    last = first + count - 1
    if first and last > broker_start.PORT_MAX:
        text = f"{option} with port {first} leaves no room for {count} {processes}"
        raise CliError("LL0902", text, f"the last of them would have port {last}")
    with ExitStack() as stack:
        try:
            ports = stack.enter_context(reserved_ports(host, first, count))
        except OSError as error:
            text = f"cannot listen on {host}, ports {first} to {last}: {error.strerror}"
            raise CliError("LL0702", text, f"use {option} to set another first port") from error
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
            words += ["--http", _following(arguments.http, node_id - 1)]
        words += ["-v"] * min(arguments.verbose, 1) + ["-q"] * arguments.quiet
        specs.append(BrokerSpec(node_id, address, words))
    return specs


def _following(address: str, index: int) -> str:
    """Return HOST:PORT or NAME=HOST:PORT with the port of a later broker; 0 stays."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + index if int(port) else 0}"


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


def _broker_line(node_id: int, line: bytes) -> None:
    note(f"broker {node_id} | {printable(line.decode('utf-8', 'backslashreplace'))}")


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


logger = logging.getLogger(__name__)

WORKERS_MAX = 64
_ONE_REPLICA = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)
"""Replicas on one disk protect from little, and cost as much as on several hosts."""


def run_workers(arguments: broker_start.BrokerArguments, count: int) -> int:
    """Run workers until SIGTERM or SIGINT; return the exit status.

    Raises `CliError` if they cannot start, and when all of them have refused their metadata store.
    """
    _check_count("workers", count, WORKERS_MAX)
    start_logging(logging.WARNING if arguments.quiet else logging.INFO, arguments.log_format)
    config = broker_start.load_config(arguments)
    listen = broker_start.listen_address(arguments, config)
    if not listen:
        text = "--workers cannot divide the `listeners` of the properties"
        raise CliError("LL0902", text, "pass --listen HOST:PORT, the address of the first worker")
    broker_start.http_address(arguments)
    broker_start.advertised(arguments, config)
    folder = ClusterFolder(broker_start.data_folder(arguments, config))
    first_id = broker_start.first_node_id(arguments, config)
    with ExitStack() as stack:
        host, first_port = broker_start.split_address(listen, "--listen")
        ports = stack.enter_context(_ports("--listen", host, first_port, count, "workers"))
        stack.enter_context(folder.held())
        _check_all_run(folder, range(first_id, first_id + count), count)
        workers = worker_specs(arguments, config, folder, first_id, listen, ports)

        def is_complete(pids: Mapping[int, int]) -> bool:
            _log_ready(workers)
            return True

        supervisor = Supervisor(
            workers, None, is_complete=is_complete, report=_report, line=worker_line, noun="worker"
        )
        asyncio.run(supervisor.run())
    return 0


def worker_specs(
    arguments: broker_start.BrokerArguments,
    config: BrokerConfig,
    folder: ClusterFolder,
    first_id: int,
    listen: str,
    ports: Sequence[int],
) -> list[BrokerSpec]:
    """Return the workers: node ids from `first_id` on, with these ports of the host of `listen`.

    The internal topics have one replica unless the user sets another number, or brokers of other
    hosts may share the metadata store.
    """
    host = listen.rpartition(":")[0]
    has_own_store = arguments.metadata is None and not config.is_set("lakelog.metadata.store")
    common = [f"--set={key}=1" for key in _ONE_REPLICA if has_own_store and not config.is_set(key)]
    common += [f"--set={setting}" for setting in arguments.settings]
    if has_own_store:
        common.append(f"--metadata=sqlite:{folder.metadata}")
    elif arguments.metadata is not None:
        common.append(f"--metadata={arguments.metadata}")
    if arguments.properties is not None:
        common.append(f"--properties={arguments.properties}")
    common.append(f"--log-format={_log_format(arguments)}")
    common += ["--insecure"] * arguments.insecure
    common += ["-v"] * arguments.verbose + ["-q"] * arguments.quiet
    specs = []
    for index, port in enumerate(ports):
        node_id, address = first_id + index, f"{host}:{port}"
        words = [f"--node-id={node_id}", f"--data={folder.broker(node_id)}", f"--listen={address}"]
        if arguments.http is not None:
            words.append(f"--http={_following(arguments.http, index)}")
        words += [f"--advertise={_following(address, index)}" for address in arguments.advertise]
        specs.append(BrokerSpec(node_id, address, (*words, *common)))
    return specs


def worker_line(node_id: int, line: bytes) -> None:
    """Print a line that a worker has logged, with its node id: as a field of JSON, or before it."""
    if line.startswith(b"{"):
        line = b'{"worker": %d, ' % node_id + line[1:]
        text = line.decode("utf-8", "backslashreplace")
    else:
        text = f"worker {node_id} | {printable(line.decode('utf-8', 'backslashreplace'))}"
    note(text)


def _check_all_run(folder: ClusterFolder, node_ids: range, count: int) -> None:
    """Raise `CliError` if the folder has data of a worker that would not run."""
    idle = sorted(folder.node_ids() - set(node_ids))
    if idle:
        text = f"{folder.broker(idle[0])} has data of a worker that --workers {count} does not run"
        raise CliError("LL0703", text, f"pass --workers {max(idle) - node_ids.start + 1}")


def _log_format(arguments: broker_start.BrokerArguments) -> str:
    if arguments.log_format in ("text", "json"):
        return arguments.log_format
    return "text" if sys.stderr.isatty() else "json"


def _log_ready(workers: Sequence[BrokerSpec]) -> None:
    addresses = ",".join(worker.address for worker in workers)
    logger.info(
        "%d workers are ready on %s",
        len(workers),
        addresses,
        extra=event("workers_ready", workers=len(workers), addresses=addresses),
    )


def _report(text: str) -> None:
    logger.warning("%s", text, extra=event("worker_ended"))
