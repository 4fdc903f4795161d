"""One broker, and several workers of `lakelog serve --workers`, under the same load.

Each partition has one replica, and each connection a partition of its own. The processor time of
all workers and of their supervisor counts. The load generator runs on the same cores: its own
part of them is not available to the workers. The program prints its measurements and passes no
judgement.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from benchmark import Benchmark  # noqa: E402
from brokers import BrokerError, LakelogBroker, running  # noqa: E402
from confluent_kafka.admin import AdminClient  # noqa: E402
from load import Case, LoadGenerator, Measurement  # noqa: E402
from report import Results, tables  # noqa: E402
from rounds import interleaved  # noqa: E402
from tables import Table  # noqa: E402

_FORMED_TIMEOUT_S = 120.0
_POLL_S = 0.1
CASES = (
    Case("produce 98 KB, 8 conn.", "produce", "large", 98_000, 400, records=100, connections=8),
    Case("produce 1 KB, 8 conn.", "produce", "small", 1024, 100, connections=8, requests=40_000),
    Case("fetch 98 KB, 8 conn.", "fetch", "large", 1 << 20, 3000, connections=8),
)


class Workers(LakelogBroker):
    """`lakelog serve`, with `--workers` for more than one."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(folder)
        self.name = f"{count} workers" if count > 1 else "1 broker"
        self._count = count

    def command(self) -> list[str]:
        workers = ["--workers", str(self._count)] if self._count > 1 else []
        return [*super().command(), *workers]

    def await_ready(self) -> None:
        """Wait until each worker knows all others."""
        super().await_ready()
        deadline = time.monotonic() + _FORMED_TIMEOUT_S
        for number in range(self._count):
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port + number}"})
            while len(admin.list_topics(timeout=_FORMED_TIMEOUT_S).brokers) < self._count:
                if time.monotonic() > deadline:
                    raise BrokerError(f"{self.name} did not find each other")
                time.sleep(_POLL_S)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/workers.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds per case")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers of workers")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


def _measure(options: argparse.Namespace, folder: Path) -> Iterator[Table]:
    load = LoadGenerator(_PROJECT / "build" / "bench")
    compared = [Workers(folder / str(count), count) for count in options.workers]
    results = Results([each.name for each in compared])
    with running(compared):
        cases = [case for case in CASES if options.only in case.name]
        for case in {case.topic: case for case in cases}.values():
            for each in compared:
                load.create_topic(each, case.topic, case.partitions)
        for case in cases:

            def measure(workers: Workers, case: Case = case) -> Measurement:
                return load.measure(workers, case)

            found = interleaved(
                case.name, compared, options.rounds, measure, lambda run: run.requests_per_cpu_s
            )
            for name, runs in found.items():
                results.loads[case, name] = runs
        yield from tables(results)


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)

    def about() -> str:
        return f"Median of {options.rounds} interleaved rounds; one replica; all processes counted."

    return Benchmark("workers", "workers", about).run(
        argv, options, lambda folder: _measure(options, folder)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
