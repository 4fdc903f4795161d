"""A hint names only options that the command it is printed by has.

Every `CliError(...)` of the command line is traced to the commands that can raise it, by the names
of the functions that call one another; the options in its hint must be theirs, or of the command
that the hint itself names ("lakelog group list").
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lakelog.cli import main
from lakelog.cli.catalog import CATALOG
from unit.cli.command_model import accepted, commands

FOLDER = Path(main.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
COMMAND = re.compile(r"lakelog ([a-z]+)(?: ([a-z]+(?:-[a-z]+)*))?")
ANYWHERE = {"--help", "--version", "--debug", "--quiet", "--verbose"}


class Hint(NamedTuple):
    place: str
    function: tuple[str, str]
    text: str


class Source:
    """The functions of one module, the functions they call, and the hints they raise."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.imported: dict[str, tuple[str, str]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lakelog.cli."):
                module = str(node.module).rpartition(".")[2]
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = (module, alias.name)
        self.functions = {
            node.name: node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self.classes = {
            node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)
        }

    def calls(self, function: ast.AST) -> Iterator[tuple[str, str]]:
        """Functions and classes that a function names; a class stands for its methods."""
        for node in ast.walk(function):
            name = node.id if isinstance(node, ast.Name) else ""
            name = node.attr if isinstance(node, ast.Attribute) else name
            if name in self.functions or name in self.classes:
                yield self.name, name
            elif name in self.imported:
                yield self.imported[name]

    def hints(self) -> Iterator[Hint]:
        for name, function in self.functions.items():
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "CliError":
                    parts = [*node.args[2:], *(k.value for k in node.keywords if k.arg == "hint")]
                    text = " ".join(_constants(part) for part in parts)
                    yield Hint(f"{self.name}.py:{node.lineno}", (self.name, name), text)


def _constants(node: ast.AST) -> str:
    return "".join(
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )


class CommandLine:
    """The sources of the command line, the functions that each command reaches, and the hints."""

    def __init__(self) -> None:
        self._sources = {
            path.stem: Source(path) for path in FOLDER.rglob("*.py") if path.stem != "__init__"
        }
        self.accepted = {words: accepted(words) for words in commands()}
        self.hints = [
            hint
            for source in self._sources.values()
            for hint in source.hints()
            if set(OPTION.findall(hint.text)) - ANYWHERE
        ]
        self._reached = {
            words: self._reach((called.__module__.rpartition(".")[2], called.__name__))
            for words, called in ((words, each.function) for words, each in commands().items())
        }

    def raised_by(self, hint: Hint) -> list[str]:
        return [words for words, functions in self._reached.items() if hint.function in functions]

    def _reach(self, start: tuple[str, str]) -> set[tuple[str, str]]:
        """All functions that a function can come to."""
        found: set[tuple[str, str]] = set()
        open_ = [start]
        while open_:
            module, name = open_.pop()
            if (module, name) in found or module not in self._sources:
                continue
            found.add((module, name))
            source = self._sources[module]
            if name in source.functions:
                open_ += source.calls(source.functions[name])
            elif name in source.classes:
                body = source.classes[name].body
                methods = [node.name for node in body if isinstance(node, ast.FunctionDef)]
                open_ += [(module, method) for method in methods]
                open_ += source.calls(source.classes[name])
        return found


@pytest.fixture(scope="module")
def line() -> CommandLine:
    """Made by the process that runs these tests only: each process collects all tests."""
    return CommandLine()


def test_a_hint_names_only_options_of_its_command(line: CommandLine) -> None:
    for hint in line.hints:
        by = line.raised_by(hint)
        assert by, f"{hint.place}: no command was found that can raise it"
        named = COMMAND.search(hint.text)
        whose = [known for known in commands() if named and known in _names(named)] or by
        for words in whose:
            missing = set(OPTION.findall(hint.text)) - line.accepted[words] - ANYWHERE
            text = f"{hint.place}: lakelog {words} has no {', '.join(missing)}: {hint.text}"
            assert not missing, text


def _names(named: re.Match[str]) -> set[str]:
    return {named[1], f"{named[1]} {named[2]}"}


def test_the_walk_finds_every_planted_hint(line: CommandLine) -> None:
    assert len(line.hints) > 10
    by = {hint.place.partition(":")[0]: set(line.raised_by(hint)) for hint in line.hints}
    assert {"topic delete", "group delete"} <= by["interaction.py"]
    assert by["broker_start.py"] <= {"dev", "serve"}


@pytest.mark.parametrize("code", CATALOG)
def test_the_page_of_a_code_names_only_existing_options(line: CommandLine, code: str) -> None:
    known = {option for options in line.accepted.values() for option in options}
    text = CATALOG[code].text
    assert set(OPTION.findall(text)) <= known | ANYWHERE
    for quoted in re.findall(r"`(lakelog [a-z][^`]+)`", text):
        named = COMMAND.match(quoted)
        assert named is not None
        whose = [words for words in commands() if words in _names(named)]
        assert whose, quoted
        assert set(OPTION.findall(quoted)) <= line.accepted[whose[-1]], quoted
