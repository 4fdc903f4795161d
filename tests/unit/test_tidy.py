"""Rules of the house that no linter knows: no ambient world in decisions, docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.xdist_group("trees")]

_TESTS = Path(__file__).parents[1]
_SOURCE = _TESTS.parent / "src"
_PACKAGE = _SOURCE / "lakelog"

# Code that decides: it takes values, clocks and disks as arguments and cannot reach for its own.
_DECISION_PATHS = (
    "wire",
    "protocol",
    "records",
    "assignors.py",
    "network_client.py",
    "storage",
    "replica",
    "coordinator",
    "metadata",
    "server/handlers",
    "server/inter_broker",
)
# The drivers inside decision packages, whose business is to wait for the world.
_DRIVERS = ("metadata/store", "metadata/log.py")

_AMBIENT_MODULES = {
    *("asyncio", "concurrent", "multiprocessing", "select", "selectors", "signal", "socket", "ssl"),
    *("glob", "os", "random", "secrets", "shutil", "subprocess", "tempfile", "threading", "time"),
    *("fcntl", "http", "mmap", "sqlite3", "urllib"),
}
_SEAM = "lakelog.runtime.api"
_AMBIENT_CALLS = {"open", "input", "print", "uuid1", "uuid4"}
_AMBIENT_METHODS = {
    *("cwd", "home", "iterdir", "read_bytes", "read_text", "rglob", "write_bytes", "write_text"),
    *("absolute", "chmod", "expanduser", "glob", "hardlink_to", "is_file", "is_symlink", "lstat"),
    *("mkdir", "readlink", "resolve", "rmdir", "samefile", "stat", "symlink_to", "touch", "unlink"),
    *("walk", "uuid1", "uuid4"),
}
# Methods of a disk that take a path, and of a path itself.
_DISK_METHODS = {"exists", "is_dir", "rename"}
# Methods that other types have too: a segment is opened, text is replaced.
_PATH_METHODS = {"open", "replace"}
_PATH_NAMES = ("path", "folder", "file", "dir", "parent")
_CALENDAR = {"date", "datetime"}


def _modules() -> list[Path]:
    return sorted(path for path in _SOURCE.rglob("*.py") if "__pycache__" not in path.parts)


def _name(path: Path) -> str:
    return path.relative_to(_SOURCE).as_posix()


def _decision_modules() -> list[Path]:
    drivers = [_PACKAGE / driver for driver in _DRIVERS]
    found = []
    for part in _DECISION_PATHS:
        root = _PACKAGE / part
        for path in [root] if root.is_file() else sorted(root.rglob("*.py")):
            if not any(path == driver or driver in path.parents for driver in drivers):
                found.append(path)
    return found


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _running_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that exists when the program runs: not those for the type checker."""
    yield node
    if _is_type_checking(node):
        return
    for child in ast.iter_child_nodes(node):
        yield from _running_nodes(child)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return []


def _is_ambient_method(called: ast.Attribute) -> bool:
    owner = ast.unparse(called.value).rpartition(".")[2]
    if called.attr in _DISK_METHODS:
        return owner.lstrip("_") != "disk"
    if called.attr in _PATH_METHODS:
        return _is_path(called.value)
    return called.attr in _AMBIENT_METHODS or (
        owner in _CALENDAR and called.attr in {"now", "today", "utcnow"}
    )


def _is_path(value: ast.expr) -> bool:
    """Whether this is, by its looks, a `pathlib.Path`."""
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.Div)
    if isinstance(value, ast.Call):
        value = value.func
    name = ast.unparse(value).rpartition(".")[2].lower()
    return name.startswith("with_") or name.endswith(_PATH_NAMES)


def _ambient(tree: ast.AST) -> list[str]:
    """What in this code reaches for the world, each as "line: what"."""
    found = []
    for node in _running_nodes(tree):
        for module in _imported(node):
            if _is_ambient_module(module):
                found.append(f"{getattr(node, 'lineno', 0)}: imports {module}")
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in _AMBIENT_CALLS:
                found.append(f"{node.lineno}: calls {called.id}()")
            if isinstance(called, ast.Attribute) and _is_ambient_method(called):
                found.append(f"{node.lineno}: calls .{called.attr}()")
    return found


def _is_ambient_module(module: str) -> bool:
    """Of `lakelog.runtime` only the seam may be imported, not its implementation."""
    if module.startswith("lakelog.runtime"):
        return module != _SEAM
    return module.partition(".")[0] in _AMBIENT_MODULES


def test_decisions_do_not_reach_for_the_world() -> None:
    found = [
        f"{_name(path)}:{text}" for path in _decision_modules() for text in _ambient(_tree(path))
    ]
    assert not found, "decision code takes the world as an argument:\n" + "\n".join(found)


def test_every_decision_package_is_looked_at() -> None:
    looked_at = {_name(path) for path in _decision_modules()}
    for part in _DECISION_PATHS:
        assert any(f"{name}/".startswith(f"lakelog/{part}/") for name in looked_at), part


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "import os.path",
        "from asyncio import Future",
        "def f():\n    import socket",
        "with open('x') as f: pass",
        "Path('x').read_bytes()",
        "datetime.now()",
        "uuid.uuid4()",
        "path.stat().st_size",
        "folder.mkdir()",
        "(folder / 'a').unlink()",
        "folder.glob('*.log')",
        "path.exists()",
        "self._folder.is_dir()",
        "path.rename(other)",
        "path.with_suffix('.deleted').replace(other)",
        "with path.open() as f: pass",
        "with Path('x').open() as f: pass",
        "with (folder / 'a').open() as f: pass",
        "with segment.path(LOG).open() as f: pass",
        "import lakelog.runtime.posix",
        "from lakelog.runtime import posix",
        "from lakelog.runtime.posix import PosixDisk",
    ],
)
def test_ambient_code_is_recognised(code: str) -> None:
    assert _ambient(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "if TYPE_CHECKING:\n    import asyncio",
        "clock.wall_ms()",
        "self._timer.now()",
        "disk.open(path)",
        "self._disk.exists(path)",
        "self.handles.disk.rename(path, other)",
        "segment.open().file",
        "self._handles.open(self, path)",
        "topic.replace('.', '_')",
        "from lakelog.runtime.api import Clock",
    ],
)
def test_the_world_as_an_argument_is_allowed(code: str) -> None:
    assert not _ambient(ast.parse(code))


def test_every_public_module_has_a_docstring() -> None:
    silent = [
        _name(path)
        for path in _modules()
        if not path.stem.startswith("_") or path.stem == "__init__"
        if not path.read_text().startswith('"""')  # so that few files are parsed
        if _tree(path).body and not ast.get_docstring(_tree(path))
    ]
    assert not silent, f"no module docstring: {silent}"


def test_nothing_is_imported_from_a_conftest() -> None:
    """pytest has loaded it under another name: an import would run it, and its constants, twice."""
    found = [
        f"{path.relative_to(_TESTS)}: {module}"
        for path in sorted(_TESTS.rglob("*.py"))
        if "conftest" in path.read_text()  # so that few files are parsed
        for node in ast.walk(_tree(path))
        for module in _imported(node)
        if module.rpartition(".")[2] == "conftest"
    ]
    assert not found, f"move shared code to a module of its own: {found}"


_KNOWN_BUGS = (
    *("KIP-98", "KIP-211", "KIP-279", "KIP-320", "KIP-345", "KIP-360", "KIP-394", "KIP-447"),
    *("KIP-467", "KIP-534", "KIP-664", "KIP-848", "KIP-890", "KIP-937"),
    *("KAFKA-7190", "KAFKA-8522", "KAFKA-9144", "KAFKA-9666", "KAFKA-13636", "KAFKA-17754"),
    *("KAFKA-18660", "KAFKA-18929", "KAFKA-19367", "KAFKA-19999", "KAFKA-20090", "KAFKA-20609"),
    *("KoP #303", "Redpanda #22670", "librdkafka 0011", "librdkafka 0099"),
)
"""Bugs and promises of other logs that concern a single broker."""


def test_each_known_bug_has_a_test_of_its_name() -> None:
    texts = "".join(path.read_text() for path in _TESTS.rglob("*.py") if path != Path(__file__))
    said = texts.lower().replace("_", "-")
    assert [name for name in _KNOWN_BUGS if name.lower() not in said] == []


def test_no_client_can_freeze_a_coordinator_by_a_pattern() -> None:
    """RE2 matches in linear time; the standard library's `re` does not."""
    for path in sorted((_PACKAGE / "coordinator").rglob("*.py")):
        names = [name for node in ast.walk(_tree(path)) for name in _imported(node)]
        assert "re" not in names, _name(path)
