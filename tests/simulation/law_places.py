"""Where the simulation looks after its laws, by its source, and where one was broken."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import simulator
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law

FOLDER = Path(simulator.__file__).parent


class Place(NamedTuple):
    """A function that reports violations of a law."""

    file: str
    function: str
    law: str


def all_places() -> set[Place]:
    return {
        check
        for path in FOLDER.rglob("*.py")
        if FOLDER / "cluster" not in path.parents  # see test_planted_cluster_bugs.py
        for check in _places(ast.parse(path.read_text()), path.relative_to(FOLDER).as_posix(), "")
    }


def _places(node: ast.AST, file: str, function: str) -> Iterator[Place]:
    for child in ast.iter_child_nodes(node):
        inside = function
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = f"{function}.{child.name}".lstrip(".")
        match child:
            case ast.Attribute(value=ast.Name(id="Law"), attr=name) if name in Law.__members__:
                yield Place(file, function, name)
        yield from _places(child, file, inside)


def note_places(monkeypatch: pytest.MonkeyPatch) -> set[Place]:
    """Filled as laws are broken from now on."""
    found: set[Place] = set()
    violation = Findings.violation

    def noting(self: Findings, law: Law, text: str) -> None:
        frame = sys._getframe(1)
        if frame.f_code is Findings.expect.__code__:
            assert frame.f_back is not None
            frame = frame.f_back
        file = Path(frame.f_code.co_filename).relative_to(FOLDER).as_posix()
        found.add(Place(file, frame.f_code.co_qualname, law.name))
        violation(self, law, text)

    monkeypatch.setattr(Findings, "violation", noting)
    return found
