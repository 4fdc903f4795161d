"""`lakelog serve`: a broker in the foreground."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from lakelog.cli.broker import BrokerArguments, run_broker
from lakelog.cli.options import DEFAULT_VERBOSITY, Verbosity, noun

app = noun("serve", "Run a broker in the foreground, until SIGTERM or ^C.")


@app.default
def serve(
    *,
    data: str | None = None,
    listen: str | None = None,
    advertise: Annotated[list[str] | None, Parameter(negative="", consume_multiple=False)] = None,
    properties: str | None = None,
    settings: Annotated[
        list[str] | None, Parameter(name="--set", negative="", consume_multiple=False)
    ] = None,
    node_id: str | None = None,
    http: str | None = None,
    log_format: Literal["auto", "text", "json"] = "auto",
    insecure: Annotated[bool, Parameter(negative="")] = False,
    verbosity: Verbosity = DEFAULT_VERBOSITY,
) -> int:
    """Run a broker in the foreground, until SIGTERM or ^C.

    Parameters
    ----------
    data
        Folder for everything the broker keeps (else log.dirs of the properties).
    listen
        HOST:PORT to listen on (else `listeners` of the properties, else 127.0.0.1:9092). Port 0
        takes a free one.
    advertise
        NAME=HOST:PORT that clients are told to connect to, per listener name such as PLAINTEXT;
        may be repeated. Without it they are told the address they came to, which is right unless
        there is NAT in between.
    properties
        A server.properties file with Kafka's keys.
    settings
        KEY=VALUE with Kafka's keys; may be repeated, and goes before the file and before values
        that `lakelog config set` has stored.
    node_id
        Number of this broker (else node.id of the properties, else 1).
    http
        HOST:PORT for metrics and health over HTTP: /metrics, /metrics/detail, /healthz, /readyz,
        /version. Without it there are none.
    log_format
        Log lines as text or json (default auto: text on a terminal, else json).
    insecure
        Listen beyond loopback, with --listen or --http, although there is no authentication.
    """
    return run_broker(
        BrokerArguments(
            data=data,
            listen=listen,
            advertise=tuple(advertise or ()),
            properties=properties,
            settings=tuple(settings or ()),
            node_id=node_id,
            http=http,
            log_format=log_format,
            insecure=insecure,
            verbose=verbosity.verbose,
            quiet=verbosity.quiet,
        )
    )
