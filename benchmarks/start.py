"""How long commands take from start to exit: version, help, and a question to a running broker.

Each command runs in a process of its own, in turn with the others, its output into a pipe. Wall
time is what a person waits; CPU time (user and system) says the same on a machine with other work.
Only lakelog is measured.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from brokers import BrokerError, LakelogBroker, running  # noqa: E402
from rounds import note  # noqa: E402
from tables import Table, record, repeat_command, section, show  # noqa: E402

_HELP_MS, _QUESTION_MS = 100, 150
_TOPICS = 20
_COMMANDS = {
    "--version": _HELP_MS,
    "--help": _HELP_MS,
    "topic --help": _HELP_MS,
    "topic list --help": _HELP_MS,
    "topic list": _QUESTION_MS,
}
_COLUMNS = ("command", "measured", "median ms", "fastest ms", "slowest ms", "at most ms")


@dataclass(frozen=True, slots=True)
class Run:
    """One process: seconds from its start to its exit, and of a processor."""

    wall_s: float
    cpu_s: float


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/start.py", description=__doc__)
    parser.add_argument("--runs", type=int, default=40, help="of each command")
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


def _run(program: str, words: Sequence[str], environment: dict[str, str]) -> Run:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([program, *words], env=environment, stdout=subprocess.PIPE, check=True)
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(wall_s, cpu_s)


def _measure(broker: LakelogBroker, runs: int) -> dict[str, list[Run]]:
    program = broker.command()[0]
    environment = os.environ | {"LAKELOG_BROKERS": f"127.0.0.1:{broker.port}"}
    names = [f"topic-{number}" for number in range(_TOPICS)]
    _run(program, ["topic", "create", "--quiet", *names], environment)
    found: dict[str, list[Run]] = {command: [] for command in _COMMANDS}
    for command in _COMMANDS:
        _run(program, command.split(), environment)  # so that all is compiled and cached
    for number in range(1, runs + 1):
        note(f"run {number} of {runs}")
        for command, measured in found.items():
            measured.append(_run(program, command.split(), environment))
    return found


def _table(found: dict[str, list[Run]]) -> Table:
    rows = []
    for command, runs in found.items():
        for kind, seconds in (
            ("wall", [run.wall_s for run in runs]),
            ("CPU", [run.cpu_s for run in runs]),
        ):
            shown = [f"{1000 * value:.0f}" for value in (median(seconds), *_ends(seconds))]
            bound = str(_COMMANDS[command]) if kind == "wall" else ""
            rows.append([f"lakelog {command}", kind, *shown, bound])
    return Table(_COLUMNS, rows, 2)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def main(argv: Sequence[str]) -> None:
    options = _arguments(argv)
    with tempfile.TemporaryDirectory() as scratch:
        broker = LakelogBroker(Path(scratch) / "lakelog")
        with running([broker]):
            tables = [_table(_measure(broker, options.runs))]
    show(tables)
    if options.record:
        about = (
            f"From start to exit, in turn, {options.runs} runs each; `topic list` shows {_TOPICS} "
            f"topics of a running broker. Repeat with {repeat_command('start', argv)}."
        )
        record(section("starts of commands", about, tables))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BrokerError as error:
        sys.exit(str(error))
