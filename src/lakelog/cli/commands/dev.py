"""`lakelog dev`: one broker or a cluster with settings for development, and a banner."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakelog import __version__
from lakelog.cli.broker_start import DEV_OPEN_HINT, PORT_MAX, BrokerArguments, run_broker
from lakelog.cli.declaration import Argument, Noun
from lakelog.cli.failures import CliError
from lakelog.cli.options import Verbosity
from lakelog.cli.render import note

if TYPE_CHECKING:
    from lakelog.server.options import ReadyInfo

app = Noun("dev")

_SETTINGS = ("group.initial.rebalance.delay.ms=0",)
_DEFAULT_PORT = 9092
_DATA, _CLUSTER_DATA = ".lakelog", ".lakelog-cluster"


@app.command(
    port=Argument(
        "Port on 127.0.0.1 (default 9092); 0 selects a free port. Further brokers have "
        "the following ports."
    ),
    data=Argument(
        "Folder for all data (default .lakelog, or .lakelog-cluster with --brokers); it "
        "is kept when the broker stops."
    ),
    brokers=Argument(
        "Number of brokers of a cluster, each in a process of its own (default: one "
        "broker without a cluster). Topics have three replicas, or as many as there are "
        "brokers."
    ),
    zookeeper=Argument(
        "Keep the metadata of the cluster in a ZooKeeper ensemble of three servers, which "
        "is run from PySpark's jars and needs Java (default: in a file)."
    ),
    partitions="Default number of partitions of a new topic (default 1).",
    http=Argument(
        "HOST:PORT for metrics and health over HTTP, on loopback (default: no HTTP). "
        "Further brokers have the following ports.",
        metavar="HOST:PORT",
    ),
    settings=Argument(
        "KEY=VALUE with Kafka's keys; may be repeated.", "--set", metavar="KEY=VALUE"
    ),
)
def dev(
    *,
    port: int = _DEFAULT_PORT,
    data: str | None = None,
    brokers: int | None = None,
    zookeeper: bool = False,
    partitions: int = 1,
    http: str | None = None,
    settings: list[str] | None = None,
    verbosity: Verbosity,
) -> int:
    """Run a broker or a cluster for development, on loopback only, until SIGTERM or ^C.

    Like `serve`, but new groups start without the initial rebalance delay, and topics are created
    at their first use. With --brokers, a broker that ends by itself is started again.
    """
    if not 0 <= port <= PORT_MAX:
        raise CliError(
            "LL0902", f"--port {port} is not a port", f"a port is a number from 0 to {PORT_MAX}"
        )
    given = (*_SETTINGS, f"num.partitions={partitions}", *(settings or ()))
    if brokers is not None:
        from lakelog.cli.local_cluster.running import ClusterArguments, run_cluster

        return run_cluster(
            ClusterArguments(
                brokers=brokers,
                data=Path(data or _CLUSTER_DATA),
                port=port,
                settings=given,
                http=http,
                zookeeper=zookeeper,
                verbose=verbosity.verbose,
                quiet=verbosity.quiet,
            )
        )
    if zookeeper:
        raise CliError("LL0902", "--zookeeper is for a cluster", "pass --brokers 3, too")
    folder = data or _DATA
    arguments = BrokerArguments(
        data=folder,
        listen=f"127.0.0.1:{port}",
        settings=given,
        http=http,
        verbose=verbosity.verbose,
        quiet=verbosity.quiet,
        address_option="--port",
        open_hint=DEV_OPEN_HINT,
    )
    return run_broker(
        arguments, ready=lambda info: note(banner(info, Path(folder)), quiet=verbosity.quiet)
    )


def banner(info: ReadyInfo, data: Path) -> str:
    """Return the banner that is printed when the broker is ready."""
    _, host, port = info.listeners[0]
    address = f"{host}:{port}"
    where = "" if port == _DEFAULT_PORT else f" -b {address}"
    return f"""
lakelog {__version__} is ready on {address}, data in {data}

  lakelog topic create demo{where} --partitions 3
  echo hello | lakelog produce demo{where}
  lakelog consume demo{where} -e
  lakelog table sync demo{where}

Any Kafka client works with bootstrap servers {address}. Press ^C to stop the broker.
"""
