"""Runs seeds on all cores, and says which of them fail, how, and how to see it again."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from simulator.cluster.plan import ClusterPlan, cluster_plan_of
from simulator.cluster.world import ClusterWorld
from simulator.execution import WorldOutcome, run_world
from simulator.plan import Plan, plan_of
from simulator.world import World

_VIOLATIONS_SHOWN = 20


def run_seed(seed: int) -> WorldOutcome:
    """Run the seed's cluster of three brokers."""
    return run_world(ClusterWorld(seed))


def run_seed_alone(seed: int) -> WorldOutcome:
    """Run the seed's broker that is a cluster by itself."""
    return run_world(World(seed))


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 1 if a seed has failed, or shows next to nothing."""
    parser = argparse.ArgumentParser(prog="python -m simulator")
    parser.add_argument("--seed", type=int, help="run this one seed again")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument(
        "--brokers", type=int, choices=(1, 3), default=3, help="how many form the cluster"
    )
    options = parser.parse_args(arguments)
    is_alone = options.brokers == 1
    run_one = run_seed_alone if is_alone else run_seed
    if options.seed is not None:
        plan = plan_of(options.seed) if is_alone else cluster_plan_of(options.seed)
        return _report_one(options.seed, plan, run_one, is_alone=is_alone)
    began = time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    workers = min(len(os.sched_getaffinity(0)), len(seeds))
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        return _report(pool.map(run_one, seeds), began, is_alone=is_alone)


def _report_one(
    seed: int, plan: Plan, run_one: Callable[[int], WorldOutcome], *, is_alone: bool
) -> int:
    _say(f"seed {seed}: {', '.join(sorted(plan.workloads))}")
    _say(f"faults: {', '.join(sorted(plan.faults)) or 'none'}; synced at once: {plan.is_durable}")
    if isinstance(plan, ClusterPlan):
        _say(f"metadata store: {plan.store}")
    outcome = run_one(seed)
    _say(f"{outcome.steps} steps in {outcome.virtual_s:.1f} virtual seconds, hash {outcome.hash}")
    _say_counts("faults", outcome.faults)
    _say_counts("seen", outcome.counts)
    _say_violations(outcome, is_alone=is_alone)
    return int(bool(outcome.violations) or outcome.is_thin)


def _report(outcomes: Iterable[WorldOutcome], began: float, *, is_alone: bool) -> int:
    faults: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    steps, virtual_s, seeds, failed = 0, 0.0, 0, 0
    for outcome in outcomes:
        faults.update(outcome.faults)
        counts.update(outcome.counts)
        steps, virtual_s, seeds = steps + outcome.steps, virtual_s + outcome.virtual_s, seeds + 1
        if outcome.violations or outcome.is_thin:
            failed += 1
            _say_violations(outcome, is_alone=is_alone)
    elapsed = time.monotonic() - began
    _say(f"{seeds} seeds in {elapsed:.1f} s ({seeds / elapsed:.2f} seeds/s), {failed} failed")
    _say(f"{steps} steps, {virtual_s / 60:.1f} minutes of virtual time")
    _say_counts("faults", faults)
    _say_counts("seen", counts)
    return int(bool(failed))


def _say_violations(outcome: WorldOutcome, *, is_alone: bool) -> None:
    for text in outcome.violations[:_VIOLATIONS_SHOWN]:
        _say(f"seed {outcome.seed}: {text}")
    more = len(outcome.violations) - _VIOLATIONS_SHOWN
    if more > 0:
        _say(f"seed {outcome.seed}: and {more} more")
    if outcome.is_thin:
        _say(f"seed {outcome.seed}: no broker died, or next to nothing was acknowledged")
    if outcome.violations or outcome.is_thin:
        brokers = " BROKERS=1" if is_alone else ""
        _say(f"see it again with: make sim SEED={outcome.seed}{brokers}")


def _say_counts(what: str, counts: Mapping[str, int]) -> None:
    _say(f"{what}: " + ", ".join(f"{name} {counts[name]}" for name in sorted(counts)))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
