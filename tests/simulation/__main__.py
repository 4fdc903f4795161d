"""`make planted`: how many seeds catch each planted bug of a cluster."""

from __future__ import annotations

import argparse
import sys

from simulation.planted_cluster_bugs import BUGS
from simulation.test_planted_cluster_bugs import violations


def main() -> int:
    """The exit status: 1 if no seed has caught one of the bugs."""
    parser = argparse.ArgumentParser(prog="python -m simulation")
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds to run for each bug")
    parser.add_argument("--bug", action="append", choices=BUGS, help="only this one")
    parser.add_argument("--first", action="store_true", help="stop at the first seed that does")
    options = parser.parse_args()
    missed = False
    for name in options.bug or BUGS:
        caught: dict[int, str] = {}
        for seed in range(1, options.seeds + 1):
            found = violations(BUGS[name], seed)
            if found:
                caught[seed] = found[0]
                if options.first:
                    break
        missed |= not caught
        _say(f"{name}: {len(caught)} of {seed} seeds: {sorted(caught)}")
        for text in sorted({text.partition(":")[0] for text in caught.values()}):
            _say(f"    {text}")
    return int(missed)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
