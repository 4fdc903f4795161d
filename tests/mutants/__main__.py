"""`python -m mutants`: draws mutants by a seed, judges them, and reports the survivors.

The exit status is 1 if a survivor is not explained in `equivalents.toml`. The verdicts are kept
in `build/mutants/verdicts.jsonl`; an interrupted run continues from there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mutants.calls import Calls
from mutants.mutations import Mutant, mutants_of
from mutants.nearest import NEAREST_S, PACKAGES, SUITE, modules, package_of
from mutants.record import explained, write_page
from mutants.trial import Trials, Verdict

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build/mutants"
VERDICTS = BUILD / "verdicts.jsonl"
_PYTEST = ("-q", "-s", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist")


def main() -> int:
    options = _options()
    drawn = draw(options.count, options.seed, options.packages, options.matching)
    known = {} if options.fresh else read_verdicts(drawn)
    if options.survivors:
        known = {
            mutant: verdict
            for mutant, verdict in known.items()
            if not verdict.survived or explained(mutant)
        }
    judged = [known[mutant] for mutant in drawn if mutant in known]
    rest = [mutant for mutant in drawn if mutant not in known]
    _say(f"{len(drawn)} mutants, {len(judged)} of them judged before")
    if rest:
        total_s = math.inf if options.survivors else NEAREST_S
        judged += judge_all(rest, options.processes, total_s, options.tests)
    return report(judged, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mutants")
    parser.add_argument("--count", type=int, default=400, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument(
        "--packages", nargs="*", default=PACKAGES, help="packages to mutate, with all below them"
    )
    parser.add_argument("--matching", default="", help="only of lines with this text")
    parser.add_argument("--processes", type=int, default=1, help="test runs at a time")
    parser.add_argument(
        "--tests", nargs="*", default=SUITE, help="judge by these, and survivors by all later on"
    )
    parser.add_argument("--fresh", action="store_true", help="judge all of them again")
    parser.add_argument(
        "--survivors",
        action="store_true",
        help="judge survivors again, by all tests, unless they are explained",
    )
    parser.add_argument("--record", action="store_true", help="write docs/mutants.md")
    return parser.parse_args()


def draw(count: int, seed: int, packages: Sequence[str], matching: str = "") -> list[Mutant]:
    """So many mutants; each package has a share by its size, and a twentieth at least.

    A mutant is drawn by its change: it stays in the draw when other lines change, and when its
    module moves within the package.
    """
    by_package: dict[str, list[Mutant]] = {}
    for path in modules(ROOT, packages):
        source = (ROOT / path).read_text()
        found = mutants_of(path.as_posix(), source)
        by_package.setdefault(package_of(path), []).extend(
            mutant for mutant in found if matching in mutant.was
        )
    total = sum(map(len, by_package.values()))
    drawn: list[Mutant] = []
    for candidates in by_package.values():
        share = max(count // 20, count * len(candidates) // max(total, 1))
        drawn += sorted(candidates, key=lambda mutant: _lot(seed, mutant))[:share]
    return sorted(drawn, key=lambda mutant: _lot(seed, mutant))


def _lot(seed: int, mutant: Mutant) -> tuple[bytes, str]:
    """Ordered by the path where two modules have the same change."""
    return hashlib.sha256(f"{seed}\n{mutant.change}".encode()).digest(), mutant.path


def judge_all(
    mutants: list[Mutant], processes: int, total_s: float, suite: Sequence[str]
) -> list[Verdict]:
    """Prints each verdict, and keeps it. Raises `RuntimeError` if a test fails without a mutant."""
    BUILD.mkdir(parents=True, exist_ok=True)
    verdicts: list[Verdict] = []

    def judged(verdict: Verdict) -> None:
        verdicts.append(verdict)
        _keep(verdict)
        _say(f"{len(verdicts)}/{len(mutants)} {verdict.seconds:.0f} s {_outcome(verdict)}")

    trials = Trials(ROOT, mutants, processes, total_s, Calls(BUILD / "calls.json"), judged)
    os.chdir(ROOT)
    if pytest.main([*_PYTEST, *suite], plugins=[trials]) or len(verdicts) != len(mutants):
        raise RuntimeError("the tests do not run without a mutant")
    return verdicts


def _keep(verdict: Verdict) -> None:
    with VERDICTS.open("a") as file:
        file.write(json.dumps([verdict.mutant.name, *verdict[1:]]) + "\n")


def read_verdicts(mutants: list[Mutant]) -> dict[Mutant, Verdict]:
    """The newest of each of these mutants."""
    by_name = {mutant.name: mutant for mutant in mutants}
    lines = VERDICTS.read_text().splitlines() if VERDICTS.exists() else []
    found = {}
    for name, *verdict in map(json.loads, lines):
        if name in by_name:
            found[by_name[name]] = Verdict(by_name[name], *verdict)
    return found


def report(verdicts: list[Verdict], options: argparse.Namespace) -> int:
    survivors = [verdict.mutant for verdict in verdicts if verdict.survived]
    reasons = {mutant: explained(mutant) for mutant in survivors}
    unexplained = [mutant for mutant, reason in reasons.items() if not reason]
    killed = len(verdicts) - len(survivors)
    _say(f"{len(verdicts)} mutants, {killed} killed, {len(survivors)} survived")
    for mutant in unexplained:
        _say(f"not explained: {_named(mutant)}")
    if options.record:
        write_page(ROOT / "docs/mutants.md", verdicts, options.count, options.seed)
    return int(bool(unexplained))


def _outcome(verdict: Verdict) -> str:
    by = f"SURVIVED {verdict.tests} tests" if verdict.survived else verdict.by
    return f"{by}: {_named(verdict.mutant)}"


def _named(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.line} {mutant.function}: {mutant.was}  ->  {mutant.became}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
