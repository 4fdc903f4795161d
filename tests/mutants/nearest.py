"""Which tests to run for a mutant: those that call its function, the nearest and quickest first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mutants.calls import key_of
from mutants.mutations import Mutant

PACKAGES = ("storage", "replica", "coordinator", "metadata")
"""Of the product, that are mutated."""

SUITE = (*(f"tests/unit/{name}" for name in (*PACKAGES, "server", "testing")), "tests/contract")
"""Where tests are chosen from; `tests/unit/testing` has seeded worlds."""

_SOURCES = Path("src/lakelog")
_SLOWER = 10.0
_GRACE_S = 60.0

Notes = Mapping[str, tuple[float, list[str]]]
"""By test, its seconds and the functions that it calls."""


def modules(root: Path) -> list[Path]:
    """All modules that are mutated, below `root`."""
    folders = (root / _SOURCES / package for package in PACKAGES)
    return [path.relative_to(root) for folder in folders for path in sorted(folder.rglob("*.py"))]


def tests_for(mutant: Mutant, notes: Notes) -> list[str]:
    """Names of tests, in the order to run them in."""
    inside = Path(mutant.path).relative_to(_SOURCES)
    key = key_of(inside.as_posix(), mutant.function)
    mirror = f"tests/unit/{inside.parent.as_posix()}/test_{inside.stem}"
    found = [(not name.startswith(mirror), notes[name][0], name) for name in notes]
    return [name for *_, name in sorted(found) if key in notes[name][1]]


def limit_s(tests: list[str], notes: Notes) -> float:
    """How long they may take before the mutant counts as killed: many times what they took."""
    return _GRACE_S + _SLOWER * sum(notes[name][0] for name in tests)
