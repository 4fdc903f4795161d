"""How lakelog and Apache Kafka bear it when things grow: partitions, connections, logs.

Both run within 16,000 descriptors, one after the other. The program prints its
measurements and passes no judgement. CPU per request is the server's, for requests of four
connections. A broker that cannot create all partitions within `--minutes` is measured with fewer.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

import scale_curves  # noqa: E402
import scale_partitions  # noqa: E402
import scale_recovery  # noqa: E402
from benchmark import Benchmark  # noqa: E402
from brokers import Broker, add_broker_options, make_brokers  # noqa: E402
from rounds import note  # noqa: E402
from scale_table import Cells, side_by_side  # noqa: E402
from tables import Table  # noqa: E402

_DESCRIPTORS = 16_000
_STEPS = (1, 10, 100, 1000, 10_000)
_ABOUT = (
    "Both brokers within 16,000 descriptors, one after the other; Kafka has a heap of 1 GB and may "
    "map {maps} files. Curves are microseconds of the server's CPU for a request."
)
_MAPS = Path("/proc/sys/vm/max_map_count")
_MEGABYTES = (1, 16, 256, 1024, 4096)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/scale.py", description=__doc__)
    parser.add_argument("--only", choices=_PARTS, help="measure this alone")
    add_broker_options(parser)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=100, help="that have the partitions")
    parser.add_argument(
        "--minutes", type=float, default=5, help="for making the partitions of one broker"
    )
    parser.add_argument("--connections", type=int, default=4000)
    parser.add_argument("--megabytes", type=int, default=4096, help="of the longest log")
    parser.add_argument("--segment", type=int, default=1 << 30, help="recovered, in bytes")
    parser.add_argument("--requests", type=int, default=4000, help="for one point of a curve")
    parser.add_argument("--rounds", type=int, default=2, help="of each recovery")
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


def _up_to(steps: Sequence[int], most: int) -> list[int]:
    return [*(step for step in steps if step < most), most]


def _partitions(brokers: list[Broker], options: argparse.Namespace) -> list[Table]:
    count, topics = options.partitions, options.topics
    return [scale_partitions.measure(brokers, count, topics, options.minutes * 60, note)]


def _recovery(brokers: list[Broker], options: argparse.Namespace) -> list[Table]:
    return [scale_recovery.measure(brokers, options.segment, options.rounds, note)]


def _curves(brokers: list[Broker], options: argparse.Namespace) -> list[Table]:
    """The three curves of one broker are made on one start of it, the longest last."""
    curves: dict[str, list[scale_curves.Curve]] = {"connections": [], "log": [], "partitions": []}
    sizes: list[dict[str, Cells]] = []
    for broker in brokers:
        broker.start()
        try:
            held = scale_curves.HeldConnections(broker)
            steps = _up_to(_STEPS, options.connections)
            curves["connections"].append(held.curve(steps, options.requests, note))
            sizes.append({f"{options.connections:,} connections held": [round(held.bytes_each)]})
            steps = _up_to(_MEGABYTES, options.megabytes)
            found = scale_curves.over_length(broker, steps, options.requests, note)
            curves["log"].append(found)
            steps = _up_to(_STEPS, options.partitions)
            limit_s = options.minutes * 60
            found = scale_curves.over_partitions(broker, steps, options.requests, limit_s, note)
            curves["partitions"].append(found)
        finally:
            broker.stop()
    each = side_by_side("", ["resident bytes for each"], brokers, sizes)
    return [each, *(_curve_table(name, brokers, curves[name]) for name in curves)]


def _curve_table(name: str, brokers: list[Broker], curves: list[scale_curves.Curve]) -> Table:
    columns = [f"{column}, us" for column in next(iter(curves[0].values()))]
    found = [
        {row: [round(value) for value in values.values()] for row, values in curve.items()}
        for curve in curves
    ]
    return side_by_side(name, columns, brokers, found)


_PARTS = {"partitions": _partitions, "curves": _curves, "recovery": _recovery}


def _measure(folder: Path, options: argparse.Namespace) -> Iterator[Table]:
    for part in [options.only] if options.only else _PARTS:
        brokers = make_brokers(options, folder / part)
        try:
            for broker in brokers:
                broker.prepare()
            yield from _PARTS[part](brokers, options)
        finally:
            shutil.rmtree(folder / part, ignore_errors=True)


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))

    def about() -> str:
        return _ABOUT.format(maps=_MAPS.read_text().strip())

    return Benchmark("scale", "as things grow", about).run(
        argv, options, lambda folder: _measure(folder, options)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
