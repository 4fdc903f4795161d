"""The first query of a new session: the PySpark source beside Spark's own Kafka connector.

Each run is a program of its own that starts a session and reads all columns of one topic. lakelog
runs with Numba's cache as an earlier program has left it, and with an empty one. The start of the
session does not count. CPU-seconds are Spark's: of its Java process, and of its Python workers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from benchmark import Benchmark  # noqa: E402
from brokers import BrokerError, LakelogBroker, running  # noqa: E402
from rounds import note  # noqa: E402
from spark_session import start_session  # noqa: E402
from tables import Table  # noqa: E402

from official_connector import connector_jars  # noqa: E402
from spark import Run, fill, run_query  # noqa: E402

_KINDS = {"kafka": "", "lakelog, warm": "warm", "lakelog, empty": "empty"}
"""The cache of each kind of run."""
_LIMIT_S = 600.0


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/spark_first.py", description=__doc__)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5, help="programs of each kind")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


def _first_query(format_: str, bootstrap: str, master: str, log: str) -> None:
    """Print the first query of a new session, as JSON."""
    spark = start_session(master, connector_jars(), Path(log))
    run = run_query(spark, bootstrap, (format_, "all"), {})
    print(json.dumps(asdict(run), default=str))
    spark.stop()


def _in_program(kind: str, bootstrap: str, master: str, scratch: Path, cache: Path) -> Run:
    format_ = kind.partition(",")[0]
    program = [sys.executable, __file__, "query", format_, bootstrap, master]
    done = subprocess.run(
        [*program, str(scratch / "spark.log")],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise BrokerError(f"{kind}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    return Run(tuple(found.pop("result")), **found)


def _measure(bootstrap: str, rounds: int, master: str, scratch: Path) -> dict[str, list[Run]]:
    """Return runs of each kind, in turn. The first round fills caches and does not count."""
    runs: dict[str, list[Run]] = {kind: [] for kind in _KINDS}
    for number in range(rounds + 1):
        for kind, cache in _KINDS.items():
            folder = scratch / (f"empty-{number}" if cache == "empty" else "warm")
            run = _in_program(kind, bootstrap, master, scratch, folder)
            note(f"{kind}, program {number}: {run.wall_s:.2f} s")
            if number:
                runs[kind].append(run)
    if len({run.result for part in runs.values() for run in part}) != 1:
        raise BrokerError("the results differ")
    return runs


def _table(runs: dict[str, list[Run]]) -> Table:
    rows = []
    official = median(run.wall_s for run in runs["kafka"])
    for kind, part in runs.items():
        wall = median(run.wall_s for run in part)
        java = median(run.java_s for run in part)
        python = median(run.python_s for run in part)
        format_, _, cache = kind.partition(", ")
        ratio = f"{wall / official:.2f} x" if cache else ""
        work = [f"{java:.2f}", f"{python:.2f}", f"{java + python:.2f}"]
        rows.append([format_, cache, f"{wall:.2f}", *work, ratio])
    columns = ("format", "cache", "seconds", "Java CPU-s", "Python CPU-s", "CPU-s", "time")
    return Table(columns, rows, 2)


def _tables(options: argparse.Namespace, scratch: Path) -> Iterator[Table]:
    broker = LakelogBroker(scratch / "lakelog")
    with running([broker]):
        fill(broker, options.records, options.value_bytes)
        bootstrap = f"127.0.0.1:{broker.port}"
        yield _table(_measure(bootstrap, options.rounds, options.master, scratch))


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["query"]:
        _first_query(*argv[1:])
        return 0
    options = _arguments(argv)

    def about() -> str:
        return (
            f"{options.records:,} records of {options.value_bytes} B in 4 partitions, "
            f"{options.master}; the first query of a new session over all columns, medians of "
            f"{options.rounds} programs each, in turn. Load at the end: {os.getloadavg()[0]:.0f}."
        )

    frame = Benchmark("spark_first", "PySpark source, first query", about)
    return frame.run(argv, options, lambda folder: _tables(options, folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
