"""The imports between modules of a source tree, and the circles among them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from pathlib import Path

Graph = dict[str, set[str]]
"""The modules that each module imports, by their full names."""


class Kind(Enum):
    """When an import is executed."""

    LOADED = "when the module is loaded"
    CALLED = "in a function"
    NEVER = "under `if TYPE_CHECKING`"


def read_imports(source: Path) -> dict[Kind, Graph]:
    """Return the imports of all modules below the folder `source`.

    `import a.b` is an import of `a.b` alone, although Python loads `a` as well.
    """
    paths = {_module_name(path, source): path for path in sorted(source.rglob("*.py"))}
    found: dict[Kind, Graph] = {kind: {name: set() for name in paths} for kind in Kind}
    for name, path in paths.items():
        for node, kind in _imports(ast.parse(path.read_bytes()), Kind.LOADED):
            found[kind][name].update(set(_targets(node, paths)) - {name})
    return found


def union(graphs: Iterable[Graph]) -> Graph:
    """Return the imports of all graphs together."""
    merged: Graph = {}
    for graph in graphs:
        for name, targets in graph.items():
            merged.setdefault(name, set()).update(targets)
    return merged


def _module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(node: ast.AST, kind: Kind) -> Iterator[tuple[ast.Import | ast.ImportFrom, Kind]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, kind
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and kind is Kind.LOADED:
        kind = Kind.CALLED
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):  # nine of ten nodes; no expression imports
            continue
        is_typing = (
            isinstance(node, ast.If)
            and "TYPE_CHECKING" in ast.unparse(node.test)
            and child in node.body
        )
        yield from _imports(child, Kind.NEVER if is_typing else kind)


def _targets(node: ast.Import | ast.ImportFrom, known: Collection[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
        return
    assert node.module is not None, "relative imports are banned"
    for alias in node.names:
        submodule = f"{node.module}.{alias.name}"
        if submodule in known:
            yield submodule
        elif node.module in known:
            yield node.module


def circles(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components of several modules, largest first.

    The algorithm is Tarjan's.
    """
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        path.append(name)
        for target in sorted(graph[name]):
            if target not in order:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in path:
                lowest[name] = min(lowest[name], order[target])
        if lowest[name] == order[name]:
            start = path.index(name)
            if len(path) - start > 1:
                found.append(sorted(path[start:]))
            del path[start:]

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return sorted(found, key=lambda circle: (-len(circle), circle))


def package_circles(graph: Graph) -> list[list[str]]:
    """Return the circles of which at least one part is a package as a whole.

    Such a circle need not be one of modules: `a.x` may import `b.x`, and `b.y` import `a.y`.
    """
    packages = {parent for name in graph for parent in _parents(name)}
    depths = range(1, 1 + max(name.count(".") for name in graph))
    found = [circle for depth in depths for circle in circles(_shortened(graph, depth))]
    return [circle for circle in found if not packages.isdisjoint(circle)]


def package_of(name: str, depth: int = 2) -> str:
    """Return the first `depth` parts of a module's name."""
    return ".".join(name.split(".")[:depth])


def _parents(name: str) -> list[str]:
    return [package_of(name, depth) for depth in range(1, 1 + name.count("."))]


def _shortened(graph: Graph, depth: int) -> Graph:
    merged: Graph = {}
    for name, targets in graph.items():
        package = package_of(name, depth)
        others = {package_of(target, depth) for target in targets} - {package}
        merged.setdefault(package, set()).update(others)
    return merged
