"""How long commands take from start to exit, and `lakelog.testing.broker` until it is ready.

The commands are version, help, and a question to a running broker. Each runs in a process of its
own, in turn with the others, its output into a pipe. Wall time is the time that a user waits; CPU
time (user and system) is comparable on a machine with other work. The CPU time of a broker for
tests includes its stop. Only lakelog is measured.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from benchmark import Benchmark  # noqa: E402
from brokers import LakelogBroker, running  # noqa: E402
from rounds import note  # noqa: E402
from tables import Table  # noqa: E402

import lakelog.testing  # noqa: E402

_HELP_MS, _QUESTION_MS, _BROKER_MS = 100, 150, 500
_TOPICS = 20
_COMMANDS = {
    "--version": _HELP_MS,
    "--help": _HELP_MS,
    "topic --help": _HELP_MS,
    "topic list --help": _HELP_MS,
    "topic list": _QUESTION_MS,
}
_BROKER = "lakelog.testing.broker()"
_BOUNDS_MS = {f"lakelog {command}": bound for command, bound in _COMMANDS.items()} | {
    _BROKER: _BROKER_MS
}
_COLUMNS = ("command", "measured", "median ms", "fastest ms", "slowest ms", "at most ms")


@dataclass(frozen=True, slots=True)
class Run:
    """One process: seconds that were waited for it, and of a processor."""

    wall_s: float
    cpu_s: float


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/start.py", description=__doc__)
    parser.add_argument("--runs", type=int, default=40, help="of each command")
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


def _run(program: str, words: Sequence[str], environment: dict[str, str]) -> Run:
    before, began = _cpu_of_children_s(), time.perf_counter()
    subprocess.run([program, *words], env=environment, stdout=subprocess.PIPE, check=True)
    return Run(time.perf_counter() - began, _cpu_of_children_s() - before)


def _run_broker() -> Run:
    before, began = _cpu_of_children_s(), time.perf_counter()
    with lakelog.testing.broker():
        wall_s = time.perf_counter() - began
    return Run(wall_s, _cpu_of_children_s() - before)


def _cpu_of_children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _measure(broker: LakelogBroker, runs: int) -> dict[str, list[Run]]:
    program = broker.command()[0]
    environment = os.environ | {"LAKELOG_BROKERS": f"127.0.0.1:{broker.port}"}
    names = [f"topic-{number}" for number in range(_TOPICS)]
    _run(program, ["topic", "create", "--quiet", *names], environment)
    runs_of: dict[str, Callable[[], Run]] = {
        f"lakelog {command}": partial(_run, program, command.split(), environment)
        for command in _COMMANDS
    }
    runs_of[_BROKER] = _run_broker
    for run in runs_of.values():
        run()  # so that all is compiled and cached
    found: dict[str, list[Run]] = {name: [] for name in runs_of}
    for number in range(1, runs + 1):
        note(f"run {number} of {runs}")
        for name, measured in found.items():
            measured.append(runs_of[name]())
    return found


def _table(found: dict[str, list[Run]]) -> Table:
    rows = []
    for name, runs in found.items():
        for kind, seconds in (
            ("wall", [run.wall_s for run in runs]),
            ("CPU", [run.cpu_s for run in runs]),
        ):
            shown = [f"{1000 * value:.0f}" for value in (median(seconds), *_ends(seconds))]
            bound = str(_BOUNDS_MS[name]) if kind == "wall" else ""
            rows.append([name, kind, *shown, bound])
    return Table(_COLUMNS, rows, 2)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _tables(options: argparse.Namespace, scratch: Path) -> Iterator[Table]:
    broker = LakelogBroker(scratch / "lakelog")
    with running([broker]):
        yield _table(_measure(broker, options.runs))


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)

    def about() -> str:
        return (
            f"From start to exit, in turn, {options.runs} runs each; `topic list` shows {_TOPICS} "
            f"topics of a running broker; the broker for tests is timed until it is ready."
        )

    frame = Benchmark("start", "starts of commands", about)
    return frame.run(argv, options, lambda folder: _tables(options, folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
