"""`lakelog serve --workers N`: brokers of one host that share a data folder, and one supervisor.

A worker is a broker in a process of its own, with a node id, a port and a folder of its own.
Clients find the leader of a partition by ordinary metadata, so that the partitions are spread over
the workers. All workers end with the supervisor, however that ends.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.events import event
from lakelog.cli.broker_start import (
    PORT_MAX,
    BrokerArguments,
    advertised,
    data_folder,
    first_node_id,
    http_address,
    listen_address,
    load_config,
    split_address,
)
from lakelog.cli.failures import CliError
from lakelog.cli.local_cluster.broker import BrokerSpec
from lakelog.cli.local_cluster.folder import ClusterFolder
from lakelog.cli.local_cluster.ports import reserved_ports
from lakelog.cli.local_cluster.supervisor import Supervisor
from lakelog.cli.log_lines import start_logging
from lakelog.cli.render import printable

logger = logging.getLogger(__name__)

WORKERS_MAX = 64
_ONE_REPLICA = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)
"""Replicas on one disk protect from little, and cost as much as on several hosts."""


def run_workers(arguments: BrokerArguments, count: int) -> int:
    """Run workers until SIGTERM or SIGINT; return the exit status.

    Raises `CliError` if they cannot start, and when all of them have refused their metadata store.
    """
    _check_count(count)
    start_logging(logging.WARNING if arguments.quiet else logging.INFO, arguments.log_format)
    config = load_config(arguments)
    listen = listen_address(arguments, config)
    if not listen:
        text = "--workers cannot divide the `listeners` of the properties"
        raise CliError("LL0902", text, "pass --listen HOST:PORT, the address of the first worker")
    http_address(arguments)
    advertised(arguments, config)
    folder = ClusterFolder(data_folder(arguments, config))
    first_id = first_node_id(arguments, config)
    with ExitStack() as stack:
        ports = stack.enter_context(_ports(listen, count))
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
    arguments: BrokerArguments,
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
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _check_count(count: int) -> None:
    if not 1 <= count <= WORKERS_MAX:
        text = f"--workers {count} is not a number of workers"
        raise CliError("LL0902", text, f"use a number from 1 to {WORKERS_MAX}")


def _check_all_run(folder: ClusterFolder, node_ids: range, count: int) -> None:
    """Raise `CliError` if the folder has data of a worker that would not run."""
    idle = sorted(folder.node_ids() - set(node_ids))
    if idle:
        text = f"{folder.broker(idle[0])} has data of a worker that --workers {count} does not run"
        raise CliError("LL0703", text, f"pass --workers {max(idle) - node_ids.start + 1}")


@contextmanager
def _ports(listen: str, count: int) -> Iterator[list[int]]:
    host, first = split_address(listen, "--listen")
    last = first + count - 1
    if first and last > PORT_MAX:
        text = f"--listen {listen} leaves no room for {count} workers"
        raise CliError("LL0902", text, f"the last worker would have port {last}")
    with ExitStack() as stack:
        try:
            ports = stack.enter_context(reserved_ports(host, first, count))
        except OSError as error:
            text = f"cannot listen on {host}, ports {first} to {last}: {error.strerror}"
            raise CliError("LL0702", text, "use --listen to set another first address") from error
        yield ports


def _following(address: str, index: int) -> str:
    """Return HOST:PORT or NAME=HOST:PORT with the port of a later worker; 0 stays."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + index if int(port) else 0}"


def _log_format(arguments: BrokerArguments) -> str:
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
