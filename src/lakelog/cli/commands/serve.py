"""`lakelog serve`: a broker in the foreground, or several as workers."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from lakelog.cli.broker_start import BrokerArguments, run_broker
from lakelog.cli.options import DEFAULT_VERBOSITY, Flag, Settings, Verbosity, noun

app = noun("serve", "Run a broker in the foreground, until SIGTERM or ^C.")


@app.default
def serve(
    *,
    data: str | None = None,
    listen: str | None = None,
    advertise: Annotated[list[str] | None, Parameter(negative="", consume_multiple=False)] = None,
    properties: str | None = None,
    settings: Settings = None,
    node_id: str | None = None,
    metadata: str | None = None,
    workers: int | None = None,
    http: str | None = None,
    log_format: Literal["auto", "text", "json"] = "auto",
    insecure: Flag = False,
    verbosity: Verbosity = DEFAULT_VERBOSITY,
) -> int:
    """Run a broker in the foreground, until SIGTERM or ^C.

    Parameters
    ----------
    data
        Folder for all data of the broker (default: log.dirs of the properties).
    listen
        HOST:PORT to listen on (default: `listeners` of the properties, or 127.0.0.1:9092). Port 0
        selects a free port.
    advertise
        NAME=HOST:PORT that clients connect to, for a listener name such as PLAINTEXT; may be
        repeated. By default the address that a client has used, which is right without NAT.
    properties
        A server.properties file with Kafka's keys.
    settings
        KEY=VALUE with Kafka's keys; may be repeated. Overrides the file and values stored by
        `lakelog config set`.
    node_id
        Id of this broker (default: node.id of the properties, or 1).
    metadata
        The metadata store that several brokers share: they form one cluster. sqlite:PATH is a
        file, for brokers of this host; zookeeper://HOST:PORT[,HOST:PORT...]/CHROOT is an ensemble
        (default: a file in the data folder, for this broker alone).
    workers
        Number of brokers to run, each in a process of its own, to use more processor cores. They
        form one cluster: --node-id, --listen, --http and --advertise are of the first one, and the
        next ones have the following ids and ports. Each has the folder broker-ID in --data.
    http
        HOST:PORT for metrics and health over HTTP: /metrics, /metrics/detail, /healthz, /readyz,
        /version (default: no HTTP).
    log_format
        Format of log lines: text or json (default auto: text on a terminal, otherwise json).
    insecure
        Allow --listen and --http on addresses that other hosts can reach. There is no
        authentication.
    """
    arguments = BrokerArguments(
        data=data,
        listen=listen,
        advertise=tuple(advertise or ()),
        properties=properties,
        settings=tuple(settings or ()),
        node_id=node_id,
        metadata=metadata,
        http=http,
        log_format=log_format,
        insecure=insecure,
        verbose=verbosity.verbose,
        quiet=verbosity.quiet,
    )
    if workers is None:
        return run_broker(arguments)
    from lakelog.cli.local_cluster.workers import run_workers

    return run_workers(arguments, workers)
