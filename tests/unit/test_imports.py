"""Modules of one package do not import each other in a circle.

The layers between packages are contracts in `pyproject.toml`; within a package a module may import
any other, as long as the modules can be read in some order.
"""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = [pytest.mark.xdist_group("trees")]
"""In one process, which then parses the source once."""

_SOURCE = Path(__file__).parents[2] / "src"

_FREE_OF_CIRCLES = [
    "lakelog.assignors",
    "lakelog.cli",
    "lakelog.coordinator",
    "lakelog.metadata",
    "lakelog.metrics",
    "lakelog.protocol",
    "lakelog.records",
    "lakelog.replica",
    "lakelog.runtime",
    "lakelog.spark",
    "lakelog.wire",
]
"""Packages without a circle; one that loses its last circle is added."""


def _name(path: Path) -> str:
    parts = path.relative_to(_SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _imports() -> dict[str, set[str]]:
    """Every module of the source, with the names that it imports when it is loaded."""
    return {_name(path): _imported(ast.parse(path.read_text())) for path in _SOURCE.rglob("*.py")}


def _imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    open_nodes: list[ast.AST] = [tree]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.Import):
            names.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
            names.update(f"{node.module}.{each.name}" for each in node.names)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            open_nodes += ast.iter_child_nodes(node)
    return names


def circle_in(imports: dict[str, set[str]], package: str) -> list[str]:
    """Return the modules of one circle in `package`, or none."""
    modules = {name for name in imports if name == package or name.startswith(f"{package}.")}
    graph = {name: imports[name] & modules - {name} for name in modules}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


@pytest.mark.parametrize("package", _FREE_OF_CIRCLES)
def test_no_circle_in(package: str) -> None:
    assert package in _imports(), "the package has gone, or has another name"
    assert circle_in(_imports(), package) == []


def test_a_circle_is_found() -> None:
    planted = {"p": set(), "p.a": {"p.b"}, "p.b": {"p.c", "q"}, "p.c": {"p.a"}, "q": {"p.a"}}
    assert set(circle_in(planted, "p")) == {"p.a", "p.b", "p.c"}
    assert circle_in(planted, "q") == []


def test_an_import_within_a_function_makes_no_circle() -> None:
    text = "import a\nif True:\n    from b import c\ndef late():\n    import d\n"
    assert _imported(ast.parse(text)) == {"a", "b", "b.c"}
