"""Figures of one package's source: its tests, assertions, sizes, docstrings and comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mirrored_tests import has_behaviour, mirror_of

FUNCTION_LINES_MAX = 40
FILE_LINES_MAX = 400
_ERRORS = re.compile(r"\b[Rr]ais(?:e|es|ed|ing)\b|\b\w+Error\b")
_UNITS = re.compile(
    r"\b(?:bytes?|[KMG]i?B|milliseconds?|ms|seconds?|s|minutes?|hours?|days?|percent"
    r"|inclusive|exclusive)\b"
)
_SOURCE = re.compile(r"\bKIP-\d+\b|\bRFC \d+\b|\bdocs/|\bKafka\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class PackageFigures:
    """Counts over the modules of a package.

    A function is public if no part of its qualified name begins with `_`.
    """

    modules: int
    """Modules with behaviour (`mirrored_tests`), except `__init__` modules."""
    mirrored: int
    """Modules with behaviour that have a unit test of their name."""
    functions: int
    assertions: int
    long_functions: int
    """Functions of more than 40 lines."""
    long_files: int
    """Files of more than 400 lines."""
    lines: int
    comments: int
    """Comments, including comments at the end of a line of code."""
    public_functions: int
    docstrings: int
    """Of public functions."""
    errors: int
    """Docstrings of public functions that name an error class or use the verb raise."""
    units: int
    """Docstrings of public functions that name a unit."""
    sources: int
    """Docstrings of public functions that name a KIP, an RFC, a page of `docs/` or Kafka."""

    def __add__(self, other: PackageFigures) -> PackageFigures:
        names = self.__slots__
        return PackageFigures(
            **{name: getattr(self, name) + getattr(other, name) for name in names}
        )


def package_figures(package: Path, project: Path) -> PackageFigures:
    """The figures of a package below `src` of `project`."""
    paths = sorted(package.rglob("*.py"))
    texts = [path.read_text() for path in paths]
    trees = [ast.parse(text) for text in texts]
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, Function)]
    public = [function for tree in trees for function in _public_functions(tree)]
    docstrings = [text for text in map(ast.get_docstring, public) if text]
    modules = [
        path
        for path, tree in zip(paths, trees, strict=True)
        if path.name != "__init__.py" and has_behaviour(tree)
    ]
    return PackageFigures(
        modules=len(modules),
        mirrored=sum(mirror_of(path, project).exists() for path in modules),
        functions=len(functions),
        assertions=sum(isinstance(node, ast.Assert) for tree in trees for node in ast.walk(tree)),
        long_functions=sum(_lines(function) > FUNCTION_LINES_MAX for function in functions),
        long_files=sum(text.count("\n") > FILE_LINES_MAX for text in texts),
        lines=sum(text.count("\n") for text in texts),
        comments=sum(map(_comments, texts)),
        public_functions=len(public),
        docstrings=len(docstrings),
        errors=_matches(_ERRORS, docstrings),
        units=_matches(_UNITS, docstrings),
        sources=_matches(_SOURCE, docstrings),
    )


def large_parts(source: Path) -> list[tuple[str, int]]:
    """Return names and lines of the files and functions with more lines than the constants."""
    found = []
    for path in source.rglob("*.py"):
        text, name = path.read_text(), path.relative_to(source).as_posix()
        if text.count("\n") > FILE_LINES_MAX:
            found.append((name, text.count("\n")))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, Function) and _lines(node) > FUNCTION_LINES_MAX:
                found.append((f"{name}: {node.name}", _lines(node)))
    return sorted(found, key=lambda part: (-part[1], part[0]))


def _public_functions(node: ast.AST) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef) and not child.name.startswith("_"):
            if isinstance(child, ast.ClassDef):
                yield from _public_functions(child)
            else:
                yield child


def _lines(function: Function) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def _comments(text: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.COMMENT for token in tokens)


def _matches(pattern: re.Pattern[str], texts: Sequence[str]) -> int:
    return sum(pattern.search(text) is not None for text in texts)
