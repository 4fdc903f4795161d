"""`python -m mutants`: draws mutants by a seed, judges them, and reports the survivors.

The exit status is 1 if a survivor is not explained in `equivalents.toml`. What was judged is kept
in `build/mutants/verdicts.jsonl`; a run that was interrupted goes on from there.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutants.mutations import Edit, Mutant, mutants_of
from mutants.nearest import PACKAGES, modules
from mutants.record import explained, write_page
from mutants.trial import Laboratory, Verdict

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build/mutants"
VERDICTS = BUILD / "verdicts.jsonl"


def main() -> int:
    options = _options()
    drawn = draw(options.count, options.seed, options.matching)
    known = {} if options.fresh else read_verdicts()
    if options.survivors:
        known = {mutant: verdict for mutant, verdict in known.items() if not verdict.survived}
    judged = [known[mutant] for mutant in drawn if mutant in known]
    rest = [mutant for mutant in drawn if mutant not in known]
    _say(f"{len(drawn)} mutants, {len(judged)} of them judged before")
    if rest:
        judged += judge_all(rest, options.processes)
    return report(judged, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mutants")
    parser.add_argument("--count", type=int, default=240, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--matching", default="", help="only of lines with this text")
    parser.add_argument("--processes", type=int, default=1, help="test runs at a time")
    parser.add_argument("--fresh", action="store_true", help="judge all of them again")
    parser.add_argument("--survivors", action="store_true", help="judge the survivors again")
    parser.add_argument("--record", action="store_true", help="write docs/mutants.md")
    return parser.parse_args()


def draw(count: int, seed: int, matching: str = "") -> list[Mutant]:
    """So many mutants; each package has a share by its size, and a tenth at least."""
    by_package: dict[str, list[Mutant]] = {package: [] for package in PACKAGES}
    for path in modules(ROOT):
        source = (ROOT / path).read_text()
        found = mutants_of(path.as_posix(), source)
        by_package[path.parts[2]] += [mutant for mutant in found if matching in mutant.was]
    total = sum(map(len, by_package.values()))
    drawn: list[Mutant] = []
    for package, candidates in by_package.items():
        share = max(count // 10, count * len(candidates) // max(total, 1))
        chance = random.Random(f"{seed} {package}")
        drawn += chance.sample(candidates, min(share, len(candidates)))
    return drawn


def judge_all(mutants: list[Mutant], processes: int) -> list[Verdict]:
    """Prints each verdict, and keeps it."""
    BUILD.mkdir(parents=True, exist_ok=True)
    _say("the tests without a mutant")
    notes = Laboratory.made(ROOT, BUILD / "copy").notes()
    local = threading.local()
    lock = threading.Lock()

    def judge(numbered: tuple[int, Mutant]) -> Verdict:
        if not hasattr(local, "laboratory"):
            local.laboratory = Laboratory.made(ROOT, BUILD / f"copy-{threading.get_ident()}")
        verdict: Verdict = local.laboratory.judge(numbered[1], notes)
        with lock:
            _keep(verdict)
            _say(f"{numbered[0]}/{len(mutants)} {verdict.seconds:.0f} s {_told(verdict)}")
        return verdict

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(judge, enumerate(mutants, 1)))


def _keep(verdict: Verdict) -> None:
    with VERDICTS.open("a") as file:
        file.write(json.dumps(verdict) + "\n")


def read_verdicts() -> dict[Mutant, Verdict]:
    """The newest of each mutant."""
    if not VERDICTS.exists():
        return {}
    found = {}
    for line in VERDICTS.read_text().splitlines():
        (*names, edit), *verdict = json.loads(line)
        mutant = Mutant(*names, Edit(*edit))
        found[mutant] = Verdict(mutant, *verdict)
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


def _told(verdict: Verdict) -> str:
    by = f"SURVIVED {verdict.tests} tests" if verdict.survived else verdict.by
    return f"{by}: {_named(verdict.mutant)}"


def _named(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.line} {mutant.function}: {mutant.was}  ->  {mutant.became}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
