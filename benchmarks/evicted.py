"""A producer's latency while a consumer reads evicted records, beside Kafka's.

A topic is filled, then round by round put out of the page cache (`posix_fadvise`, checked with
`mincore`). In each round an open-loop producer of another topic is measured alone, and again while
one consumer fetches the evicted topic as fast as it can, from another place each time. Nothing
here passes judgement: all rounds are printed, and the medians are the result.

Real consumers run on other machines, so this one must not compete with the broker and the producer
for processors. It has the lowest priority (`SCHED_IDLE`) and reads 64 KiB at a time, because the
kernel does not interrupt a copy: one of 1 MiB kept the producer from its processor for 1.4 ms while
another processor was idle. `--in-line` measures without both.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from benchmark import Benchmark  # noqa: E402
from brokers import Broker, BrokerError, add_broker_options, make_brokers, running  # noqa: E402
from load import Case, LoadGenerator, Measurement, measured  # noqa: E402
from page_cache import evict  # noqa: E402
from programs import Program  # noqa: E402
from rounds import note  # noqa: E402
from tables import Table  # noqa: E402

_OLD, _LIVE = "old", "live"
_BATCH_BYTES = 1_000_000
_BATCH_RECORDS = 1000
_FETCH_BYTES = 1 << 20
_PORTION_BYTES = 1 << 16
_FILL_MEGABYTES = 2000
_ROOM = 1.25
"""Of the disk for one byte that is filled in."""
_RESIDENT_MAX = 0.01
_COLUMNS = (
    "p99 ms alone",
    "p99 ms beside",
    "beside/alone",
    "consumer MB/s",
    "alone / beside of each round",
)


@dataclass(frozen=True, slots=True)
class Round:
    alone: Measurement
    beside: Measurement
    consumer: Measurement

    def __str__(self) -> str:
        return (
            f"p99 {self.alone.p99_ms:.2f} ms alone, {self.beside.p99_ms:.2f} ms beside "
            f"{self.consumer.mb_per_s:,.0f} MB/s ({self.consumer.bytes / 1e9:.1f} GB cold)"
        )


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/evicted.py", description=__doc__)
    parser.add_argument(
        "--megabytes", type=int, default=8000, help="size of the evicted data, in 10^6 B"
    )
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds")
    parser.add_argument("--seconds", type=int, default=4, help="of one measurement")
    parser.add_argument("--rate", type=int, default=2000, help="of the producer, 1 KB requests/s")
    parser.add_argument(
        "--in-line", action="store_true", help="the consumer is not last in line for a processor"
    )
    add_broker_options(parser)
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


class Evicted:
    """The measurement and its options."""

    def __init__(self, options: argparse.Namespace) -> None:
        build = _PROJECT / "build" / "bench"
        self._load, self._consume = LoadGenerator(build), Program("load", build)
        self._steady = Program("steady", build)
        self._options = options

    def fill(self, broker: Broker) -> None:
        self._load.create_topic(broker, _OLD, 1)
        self._load.create_topic(broker, _LIVE, 1)
        left = self._options.megabytes
        while left > 0:
            part = min(left, _FILL_MEGABYTES)
            note(f"{broker.name}: {left} MB to fill in")
            case = Case("fill", "produce", _OLD, _BATCH_BYTES, part, records=_BATCH_RECORDS)
            done = self._load.measure(broker, case, seconds_max=60)
            left -= max(1, done.bytes // 1_000_000)

    def round(self, broker: Broker, number: int) -> Round:
        self._evict(broker)
        alone = self._produce(broker)
        reading = self._start_consumer(broker, self._first_offset(number))
        beside = self._produce(broker)
        found = self._consume.finish(reading, broker)
        return Round(alone, beside, Measurement(cpu_s=0, **found))

    def _start_consumer(self, broker: Broker, offset: int) -> subprocess.Popen[str]:
        options = self._options
        reading = self._consume.start(
            broker,
            "fetch",
            topic=_OLD,
            batch=_FETCH_BYTES,
            portion=_FETCH_BYTES if options.in_line else _PORTION_BYTES,
            megabytes=options.megabytes,
            seconds=options.seconds,
            offset=offset,
        )
        if not options.in_line:
            os.sched_setscheduler(reading.pid, os.SCHED_IDLE, os.sched_param(0))
        return reading

    def _evict(self, broker: Broker) -> None:
        files = list((broker.folder / "data").glob(f"{_OLD}-0/*.log"))
        resident = sum(map(evict, files))
        size = sum(file.stat().st_size for file in files)
        if not size or resident > size * _RESIDENT_MAX:
            raise BrokerError(f"{resident} of {size} bytes stay in the page cache")

    def _produce(self, broker: Broker) -> Measurement:
        options = self._options
        return measured(
            self._steady, broker, topic=_LIVE, rate=options.rate, seconds=options.seconds
        )

    def _first_offset(self, number: int) -> int:
        """Each round begins elsewhere."""
        records = self._options.megabytes * 1_000_000 // _BATCH_BYTES * _BATCH_RECORDS
        first: int = records * (number % self._options.rounds) // self._options.rounds
        return first


def _measure(options: argparse.Namespace, brokers: Sequence[Broker]) -> dict[str, list[Round]]:
    """Round 0 warms both up and is not counted."""
    evicted = Evicted(options)
    for broker in brokers:
        evicted.fill(broker)
    found: dict[str, list[Round]] = {broker.name: [] for broker in brokers}
    for number in range(options.rounds + 1):
        for broker in brokers if number % 2 else reversed(brokers):
            measured_round = evicted.round(broker, number)
            note(f"round {number} of {options.rounds}, {broker.name}: {measured_round}")
            if number:
                found[broker.name].append(measured_round)
    return found


def _table(found: dict[str, list[Round]]) -> Table:
    rows = []
    for name, rounds in found.items():
        alone = median(one.alone.p99_ms for one in rounds)
        beside = median(one.beside.p99_ms for one in rounds)
        rows.append(
            [
                "evicted",
                name,
                f"{alone:.2f}",
                f"{beside:.2f}",
                f"{beside / alone:.2f} x",
                f"{median(one.consumer.mb_per_s for one in rounds):,.0f}",
                ", ".join(f"{one.alone.p99_ms:.2f} / {one.beside.p99_ms:.2f}" for one in rounds),
            ]
        )
    return Table(("case", "broker", *_COLUMNS), rows, len(found))


def _fit(options: argparse.Namespace, folder: Path, brokers: int) -> None:
    """Asks for less if the disk has not the room."""
    room = int(shutil.disk_usage(folder).free / 1e6 / _ROOM / brokers)
    if options.megabytes > room:
        note(f"the disk has room for {room} MB a broker, not for {options.megabytes}")
        options.megabytes = room


def _run(options: argparse.Namespace, folder: Path) -> Table:
    brokers = make_brokers(options, folder)
    _fit(options, folder, len(brokers))
    with running(brokers):
        return _table(_measure(options, brokers))


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)

    def about() -> str:
        return (
            f"{options.megabytes} MB are evicted; {options.rate} requests/s of 1 KB are measured "
            f"alone and beside a consumer of the evicted data, which is "
            f"{'in line' if options.in_line else 'last in line'} for a processor. Median of "
            f"{options.rounds} rounds, each of which follows."
        )

    benchmark = Benchmark("evicted", "beside a consumer of evicted data", about)
    return benchmark.run(argv, options, lambda folder: [_run(options, folder)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
