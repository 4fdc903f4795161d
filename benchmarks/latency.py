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
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from brokers import BROKERS, Broker, BrokerError, make_brokers, running  # noqa: E402
from idle import measure_idle  # noqa: E402
from latencies import CASES, FANOUTS, measure_fanout, measure_produce  # noqa: E402
from rounds import note  # noqa: E402
from tables import Table, environment, record, repeat_command, section, show  # noqa: E402

from kafka_jars import JavaMissingError  # noqa: E402

_BUILD = _PROJECT / "build" / "bench"


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/latency.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds per case")
    parser.add_argument("--seconds", type=int, default=3, help="of one round")
    parser.add_argument("--idle-seconds", type=int, default=10, help="of one round of idling")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--broker", choices=BROKERS, help="measure this one alone")
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
    brokers = make_brokers(options.broker, folder)
    with running(brokers):
        return _measure(options, brokers)


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)
    folder = Path(tempfile.mkdtemp(prefix="lakelog-bench-"))
    try:
        tables = _run(options, folder)
    except (BrokerError, JavaMissingError) as error:
        note(f"bench: {error}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{environment()}; median of {options.rounds} rounds\n")
    show(tables)
    if options.record:
        about = (
            f"Median of {options.rounds} interleaved rounds of {options.seconds} s (idle: "
            f"{options.idle_seconds} s), each of which follows. Latencies are from the intended "
            f"send time. Repeat with {repeat_command('latency', argv)}."
        )
        record(section("latency", about, tables))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
