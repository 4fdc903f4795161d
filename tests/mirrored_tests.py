"""Which modules have a unit test of their own, by the names of files.

The test of `src/lakelog/a/b.py` is `tests/unit/a/test_b.py`. A module of declarations alone needs
none: messages of the protocol, records and interfaces are covered by oracles and by the tests of
the code that uses them.
"""

from __future__ import annotations

import ast
from pathlib import Path


def has_behaviour(tree: ast.AST) -> bool:
    """Return whether a module defines a function with statements of its own."""
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _only_declares(node)
        for node in ast.walk(tree)
    )


def mirror_of(module: Path, project: Path) -> Path:
    """Return the place of the unit test of a module below `src` of `project`."""
    folders = module.relative_to(project / "src").parent.parts[1:]
    return project.joinpath("tests", "unit", *folders, f"test_{module.name}")


def _only_declares(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the body is a docstring or `...`, as in an interface."""
    return all(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for node in function.body
    )
