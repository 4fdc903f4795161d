"""Latency beside Apache Kafka, from when a request or a record was due, and what idling costs.

Three parts. `produce`: Kafka's peak rate is measured by a closed loop, then both brokers take half
of that rate from an open loop (`steady.c`). `fan-out`: each record of one producer goes to many
consumers that wait in long polls, with fetch sessions (as the Java client) and without (as
librdkafka); a latency is that of one record at one consumer (`fanout.c`). `idle`: processor time
of a broker that holds partitions, alone and with consumers that wait. Nothing here judges: all
rounds are printed, and the medians are the result.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from benchmark import Benchmark  # noqa: E402
from brokers import Broker, add_broker_options, make_brokers, running  # noqa: E402
from idle import measure_idle  # noqa: E402
from latencies import CASES, FANOUTS, measure_fanout, measure_produce  # noqa: E402
from tables import Table  # noqa: E402

_BUILD = _PROJECT / "build" / "bench"


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/latency.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds per case")
    parser.add_argument("--seconds", type=int, default=3, help="of one round")
    parser.add_argument("--idle-seconds", type=int, default=10, help="of one round of idling")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    add_broker_options(parser)
    parser.add_argument("--rate", type=int, help="requests/s, instead of half of Kafka's peak")
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    options = parser.parse_args(argv)
    if options.broker == "lakelog" and options.rate is None:
        options.rate = 1000
    return options


def _measure(options: argparse.Namespace, brokers: list[Broker]) -> list[Table]:
    tables = []
    produce = [case for case in CASES if options.only in case.name]
    fanouts = [case for case in FANOUTS if options.only in case.name]
    if produce:
        tables.append(
            measure_produce(_BUILD, brokers, produce, options.rounds, options.seconds, options.rate)
        )
    if fanouts:
        tables.append(measure_fanout(_BUILD, brokers, fanouts, options.rounds, options.seconds))
    if options.only in "idle":
        tables.append(measure_idle(_BUILD, brokers, options.rounds, options.idle_seconds))
    return tables


def _run(options: argparse.Namespace, folder: Path) -> list[Table]:
    brokers = make_brokers(options, folder)
    with running(brokers):
        return _measure(options, brokers)


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)

    def about() -> str:
        return (
            f"Median of {options.rounds} interleaved rounds of {options.seconds} s (idle: "
            f"{options.idle_seconds} s), each of which follows. Latencies are from the intended "
            f"send time."
        )

    return Benchmark("latency", "latency", about).run(
        argv, options, lambda folder: _run(options, folder)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
