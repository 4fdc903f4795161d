"""Modules of one package do not import each other in a circle.

The layers between packages are contracts in `pyproject.toml`; within a package a module may import
any other, as long as the modules can be read in some order. An import in a function or under
`TYPE_CHECKING` counts too: it does not fail when the module is loaded, but a reader follows it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from import_graph import Graph, circles, package_circles, read_imports, union

pytestmark = [pytest.mark.xdist_group("trees")]
"""In one process, which then parses the source once."""

_SOURCE = Path(__file__).parents[2] / "src"

_PACKAGES = sorted(
    f"lakelog.{path.parent.name}" for path in (_SOURCE / "lakelog").glob("*/__init__.py")
)


@cache
def _imports() -> Graph:
    return union(read_imports(_SOURCE).values())


def _within(imports: Graph, package: str) -> Graph:
    names = {name for name in imports if name == package or name.startswith(f"{package}.")}
    return {name: imports[name] & names for name in names}


@pytest.mark.parametrize("package", _PACKAGES)
def test_modules_import_each_other_in_no_circle(package: str) -> None:
    assert circles(_within(_imports(), package)) == []


@pytest.mark.parametrize("package", _PACKAGES)
def test_rooms_import_each_other_in_no_circle(package: str) -> None:
    assert package_circles(_within(_imports(), package)) == []


def test_top_level_packages_import_each_other_in_no_circle() -> None:
    """The layers allow it between the packages of one layer."""
    found = [circle for circle in package_circles(_imports()) if set(circle) & set(_PACKAGES)]
    assert found == []


def test_only_imports_within_the_package_count() -> None:
    planted = {"p": set(), "p.a": {"p.b"}, "p.b": {"q"}, "q": {"p.a"}}
    assert circles(_within(planted, "p")) == []
