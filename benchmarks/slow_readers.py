"""How long a good client waits beside slow readers of large fetches, and when they come and go.

The good client produces one record and fetches it, call after call, on one connection. In each
round it is measured alone, then while a process opens many connections that all fetch 50 MiB at
once and read it slowly, until some seconds after the last connection, and then while that process
is killed. The slow readers share a core, so they read as fast as the kernel
and one process can.

`PYTHONPATH=/another/src` measures the lakelog of another folder. The program passes no judgement.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median, quantiles

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from benchmark import Benchmark  # noqa: E402
from brokers import Broker, BrokerError, add_broker_options, make_brokers, running  # noqa: E402
from rounds import note  # noqa: E402
from tables import Table  # noqa: E402

from fuzz.good_client import GoodClient, InBackground, allow_files  # noqa: E402
from fuzz.slow_readers import TOPIC, slow_readers  # noqa: E402
from wire_client import WireClient, batch_of, create_topic, produce  # noqa: E402

_FILL_BATCHES = 60
_BATCH_BYTES = 1_000_000
_LEAVING_S = 1.0
_WARM_UP = 1000
"""Calls before the first round, because a JVM compiles hot code only after a while."""
_FILES = 200
"""Descriptors of the process beside two for each slow reader."""
_ALONE, _BESIDE, _LEAVING = "alone", "beside slow readers", "as they leave"
_COLUMNS = ("good client", "broker", "calls", "p50 ms", "p99 ms", "longest ms", "longest of each")
Latencies = dict[str, list[float]]
"""Seconds of each call, by when it was made."""


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/slow_readers.py", description=__doc__)
    parser.add_argument("--readers", type=int, default=1500, help="connections that read slowly")
    parser.add_argument("--rounds", type=int, default=5, help="times that they come and go")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each part of a round")
    add_broker_options(parser)
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


def _fill(bootstrap: str) -> None:
    with WireClient(bootstrap) as client:
        create_topic(client, TOPIC)
        for _ in range(_FILL_BATCHES):
            if code := produce(client, TOPIC, batch_of(bytes(_BATCH_BYTES))).error_code:
                raise BrokerError(f"filling: error {code}")


def _round(broker: Broker, good: GoodClient, readers: int, seconds: float) -> Latencies:
    found: Latencies = {}

    def take(part: str) -> None:
        found[part], good.latencies_s = good.latencies_s, []

    good.latencies_s = []
    with InBackground(good, pause_s=0.0):
        time.sleep(seconds)
        take(_ALONE)
        with slow_readers(("127.0.0.1", broker.port), readers):
            time.sleep(seconds)
            take(_BESIDE)
        time.sleep(_LEAVING_S)
        take(_LEAVING)
    return found


def _measure(broker: Broker, options: argparse.Namespace) -> list[Latencies]:
    bootstrap = f"127.0.0.1:{broker.port}"
    _fill(bootstrap)
    rounds = []
    with closing(GoodClient(bootstrap)) as good:
        good.round(_WARM_UP)
        for number in range(1, options.rounds + 1):
            rounds.append(_round(broker, good, options.readers, options.seconds))
            longest = ", ".join(f"{part} {max(s) * 1000:.1f}" for part, s in rounds[-1].items())
            note(f"{broker.name}, round {number} of {options.rounds}: longest ms {longest}")
    return rounds


def _row(part: str, broker: str, rounds: list[Latencies]) -> list[str]:
    """All calls of all rounds together."""
    calls = [seconds for found in rounds for seconds in found[part]]
    figures = (median(calls), quantiles(calls, n=100)[98], max(calls))
    return [
        part,
        broker,
        f"{len(calls):,}",
        *(f"{seconds * 1000:.2f}" for seconds in figures),
        ", ".join(f"{max(found[part]) * 1000:.1f}" for found in rounds),
    ]


def _run(options: argparse.Namespace, folder: Path) -> Table:
    brokers = make_brokers(options, folder)
    found: dict[str, list[Latencies]] = {}
    for broker in brokers:
        with running([broker]):
            found[broker.name] = _measure(broker, options)
    rows = [
        _row(part, name, rounds)
        for part in (_ALONE, _BESIDE, _LEAVING)
        for name, rounds in found.items()
    ]
    return Table(_COLUMNS, rows, len(brokers))


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)
    allow_files(2 * options.readers + _FILES)

    def about() -> str:
        return (
            f"A call is one produce and one fetch. {options.readers} connections fetch 50 MiB at "
            f"once and read it slowly. Rounds: {options.rounds}; the figures are of all calls of "
            f"all of them."
        )

    benchmark = Benchmark("slow_readers", "beside slow readers", about)
    return benchmark.run(argv, options, lambda folder: [_run(options, folder)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
