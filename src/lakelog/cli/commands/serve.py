"""`lakelog serve`: a broker in the foreground, or several as workers."""

from __future__ import annotations

from lakelog.cli.broker_start import BrokerArguments, run_broker
from lakelog.cli.declaration import Argument, Noun

app = Noun("serve")


@app.command(
    workers=Argument(
        "Number of brokers to run, each in a process of its own, to use more processor "
        "cores. They form one cluster: --node-id, --listen, --http and --advertise are of the "
        "first one, and the next ones have the following ids and ports. Each has the folder "
        "broker-ID in --data."
    )
)
def serve(*, workers: int | None = None, arguments: BrokerArguments) -> int:
    """Run a broker in the foreground, until SIGTERM or ^C."""
    if workers is None:
        return run_broker(arguments)
    from lakelog.cli.local_cluster.running import run_workers

    return run_workers(arguments, workers)
