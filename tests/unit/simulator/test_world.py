"""A few seeds of the whole world; `make sim` runs as many as there is time for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simulator import World, run_world

SEEDS = (9, 31)
REPEATED = 9
_TESTS = Path(__file__).parents[2]


@pytest.mark.histories
@pytest.mark.parametrize("half", range(2))
def test_nothing_is_violated(half: int, is_long: bool) -> None:
    for seed in SEEDS[half::2] if is_long else SEEDS[half:][:1]:
        outcome = run_world(World(seed))
        assert outcome.violations == (), seed
        assert outcome.counts.get("acked") or outcome.counts.get("offsets committed"), seed


@pytest.mark.long
def test_a_seed_is_the_same_in_another_process_and_under_another_hash_seed() -> None:
    command = [sys.executable, "-m", "simulator", "--seed", str(REPEATED)]
    hashes = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(_TESTS)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.search(r"hash (\w+)", done.stdout)
        assert found is not None, done.stdout
        hashes.add(found[1])
    assert len(hashes) == 1
