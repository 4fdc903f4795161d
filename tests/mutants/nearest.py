"""The tests for a mutant: callers of its function, the nearest and quickest first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from mutants.mutations import Mutant

PACKAGES = (
    "storage",
    "replica",
    "coordinator",
    "metadata",
    "server/topics",
    "server/controller",
    "server/coordinators",
    "server/inter_broker",
    "server/replication",
)
"""Packages of the product that are mutated."""

_WORLDS = tuple(
    f"tests/simulation/test_{name}.py"
    for name in ("cut_off_coordinator", "late_isr", "metadata_transactions", "peers")
)
_TESTED = ("storage", "replica", "coordinator", "metadata", "server", "testing")
SUITE = (*(f"tests/unit/{name}" for name in _TESTED), "tests/contract", *_WORLDS)
"""Tests to choose from: unit tests, real stores, and seeded worlds of one broker and of three."""

_SOURCES = Path("src/lakelog")
NEAREST_S = 30.0
"""How long the tests take together that a mutant is judged by at first."""
_SLOWER = 10.0
_GRACE_S = 30.0


class Note(NamedTuple):
    """What one test does when nothing is changed."""

    seconds: float
    called: list[str]
    """Keys of functions, see `key_of`."""


def key_of(path: str, function: str) -> str:
    """Args:
    path: of the module below `src/lakelog`.
    """
    return f"{path}:{function.replace('.<locals>', '')}"


def package_of(path: Path) -> str:
    """Return the package of `PACKAGES` that contains a module, named from the root."""
    inside = path.relative_to(_SOURCES).as_posix()
    return next(package for package in PACKAGES if inside.startswith(f"{package}/"))


def modules(root: Path, packages: Sequence[str]) -> list[Path]:
    """Return the modules to mutate below `root`, of these packages and of all inside them.

    packages: of `PACKAGES`, or above or below some of these.
    """
    found = [
        path.relative_to(root)
        for package in PACKAGES
        for path in sorted((root / _SOURCES / package).rglob("*.py"))
    ]
    return [
        path
        for path in found
        if any(path.is_relative_to(_SOURCES / package) for package in packages)
    ]


def tests_for(mutant: Mutant, notes: Mapping[str, Note], total_s: float = math.inf) -> list[str]:
    """Return names of tests in the order to run them, which together take up to `total_s`."""
    inside = Path(mutant.path).relative_to(_SOURCES)
    key = key_of(inside.as_posix(), mutant.function)
    mirror = f"tests/unit/{inside.parent.as_posix()}/test_{inside.stem}"
    found = [(not name.startswith(mirror), notes[name].seconds, name) for name in notes]
    nearest = [(seconds, name) for _, seconds, name in sorted(found) if key in notes[name].called]
    ends = accumulate(seconds for seconds, _ in nearest)
    return [name for (_, name), end in zip(nearest, ends, strict=True) if end <= total_s]


def limit_s(note: Note) -> float:
    """Return the time after which the mutant counts as killed: many times the noted duration."""
    return _GRACE_S + _SLOWER * note.seconds
