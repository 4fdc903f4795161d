"""`lakelog dev`: a broker with settings for development, and a banner with next steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lakelog import __version__
from lakelog.cli.broker_start import PORT_MAX, BrokerArguments, run_broker
from lakelog.cli.failures import CliError
from lakelog.cli.options import DEFAULT_VERBOSITY, Verbosity, noun
from lakelog.cli.render import note

if TYPE_CHECKING:
    from lakelog.server.options import ReadyInfo

app = noun("dev", "Run a broker for development.")

_SETTINGS = ("group.initial.rebalance.delay.ms=0",)
_DEFAULT_PORT = 9092


@app.default
def dev(
    *,
    port: int = _DEFAULT_PORT,
    data: str = ".lakelog",
    partitions: int = 1,
    http: str | None = None,
    settings: Annotated[
        list[str] | None, Parameter(name="--set", negative="", consume_multiple=False)
    ] = None,
    verbosity: Verbosity = DEFAULT_VERBOSITY,
) -> int:
    """Run a broker for development, on loopback only, until SIGTERM or ^C.

    Like `serve`, but new groups start without the initial rebalance delay, and topics are created
    at their first use.

    Parameters
    ----------
    port
        Port on 127.0.0.1 (default 9092); 0 selects a free port.
    data
        Folder for all data of the broker (default .lakelog); it is kept when the broker stops.
    partitions
        Default number of partitions of a new topic (default 1).
    http
        HOST:PORT for metrics and health over HTTP, on loopback (default: no HTTP).
    settings
        KEY=VALUE with Kafka's keys; may be repeated.
    """
    if not 0 <= port <= PORT_MAX:
        raise CliError(
            "LL0902", f"--port {port} is not a port", f"a port is a number from 0 to {PORT_MAX}"
        )
    arguments = BrokerArguments(
        data=data,
        listen=f"127.0.0.1:{port}",
        settings=(*_SETTINGS, f"num.partitions={partitions}", *(settings or ())),
        http=http,
        verbose=verbosity.verbose,
        quiet=verbosity.quiet,
        address_option="--port",
        open_hint="use a loopback address, or lakelog serve --insecure for others",
    )
    return run_broker(
        arguments, ready=lambda info: note(banner(info, Path(data)), quiet=verbosity.quiet)
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
