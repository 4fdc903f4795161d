"""`make assertions`: which assertions of lakelog the simulation reaches.

An assertion that nothing reaches proves nothing. Each worker imports lakelog with a count before
every assertion of the named packages, and then runs worlds as `make sim` does, or the scenes of
`tests/simulation`.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from multiprocessing import get_context
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

PACKAGES = ("storage", "replica", "coordinator", "metadata", "server/replication")
_REAL = (
    "lakelog/metadata/store/chain.py",
    "lakelog/metadata/store/database.py",
    "lakelog/metadata/store/embedded.py",
    "lakelog/metadata/store/liveness.py",
    "lakelog/metadata/store/sqlite.py",
    "lakelog/metadata/store/zookeeper/address.py",
    "lakelog/metadata/store/zookeeper/kazoo_session.py",
)
"""Modules of real files and connections: simulated brokers have others in their place."""
_SCENES = ("tests/simulation", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", "not planted")
_COUNT = "__lakelog_reached__"

declared: set[str] = set()
"""Each assertion of an imported module, as path and line."""
reached: Counter[str] = Counter()


def counting(source: bytes, path: str) -> ast.Module:
    """Return the module with a count before each of its assertions, which `declared` gets."""
    module = ast.parse(source, path)
    _Counting(path).visit(module)
    return module


class _Counting(ast.NodeTransformer):
    def __init__(self, path: str) -> None:
        self._path = path

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        key = f"{self._path}:{node.lineno}"
        declared.add(key)
        call = ast.Call(ast.Name(_COUNT, ast.Load()), [ast.Constant(key)], [])
        count = ast.copy_location(ast.Expr(call), node)
        return [ast.fix_missing_locations(count), node]


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        module = counting(self.get_data(path), path[path.index("lakelog/") :])
        return compile(module, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[_COUNT] = lambda key: reached.update((key,))
        super().exec_module(module)


class _Finder(MetaPathFinder):
    """Finds the modules of the packages with another loader, before the usual finders do."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith(_prefixes()):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


def _prefixes() -> tuple[str, ...]:
    return tuple("lakelog." + package.replace("/", ".") for package in PACKAGES)


def install() -> None:
    """Count in modules that are imported from now on."""
    assert not any(name.startswith(_prefixes()) for name in sys.modules), "too late to count"
    sys.meta_path.insert(0, _Finder())


def run_seed(brokers: int, seed: int) -> tuple[Counter[str], set[str]]:
    """Run a world; return the reached assertions, and all assertions of imported modules."""
    from simulator.runner import run_seed as run_cluster
    from simulator.runner import run_seed_alone

    reached.clear()
    outcome = (run_cluster if brokers > 1 else run_seed_alone)(seed)
    assert not outcome.violations, (seed, outcome.violations)
    return Counter(reached), set(declared)


def run_scenes() -> tuple[Counter[str], set[str]]:
    """Run the tests of single faults; return as `run_seed`."""
    import pytest

    reached.clear()
    assert not pytest.main([*_SCENES, "--deselect", "tests/simulation/test_seeds.py"])
    return Counter(reached), set(declared)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 if some assertion was not reached."""
    parser = argparse.ArgumentParser(prog="python -m reached_assertions", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="worlds of one broker, and of three")
    seeds = range(1, parser.parse_args(arguments).seeds + 1)
    worlds = [(brokers, seed) for seed in seeds for brokers in (1, 3)]
    every: set[str] = set()
    total: Counter[str] = Counter()
    workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=install) as pool:
        jobs = [pool.submit(run_scenes), *(pool.submit(run_seed, *world) for world in worlds)]
        for job in jobs:
            counts, imported = job.result()
            total.update(counts)
            every |= {key for key in imported if not key.startswith(_REAL)}
    return _report(every, total)


def _report(every: set[str], total: Counter[str]) -> int:
    for package in PACKAGES:
        here = {key for key in every if key.startswith(f"lakelog/{package}/")}
        missed = sorted(here - total.keys())
        sys.stdout.write(f"{package}: {len(here) - len(missed)} of {len(here)} reached\n")
        for key in missed:
            path, line = key.split(":")
            text = (Path("src") / path).read_text().splitlines()[int(line) - 1].strip()
            sys.stdout.write(f"    {key}: {text}\n")
    return int(any(key not in total for key in every))


if __name__ == "__main__":
    sys.exit(main())
