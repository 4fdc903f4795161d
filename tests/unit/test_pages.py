"""Checks of the pages for users, which no run of their examples finds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from unit.cli.command_model import commands

_PROJECT = Path(__file__).parents[2]
_INSTALL = re.compile(r"pip install ([^`\n#]*)")
_MODULE = re.compile(r"`([\w./]+\.py)`")
_EXAMPLES = {"src/lakelog/a/b.py", "tests/unit/a/test_b.py"}
"""Names of modules that CONTRIBUTING.md uses as placeholders."""


def _pages() -> list[Path]:
    found = [
        *_PROJECT.glob("*.md"),
        *_PROJECT.glob("benchmarks/*.md"),
        *_PROJECT.glob("docs/**/*.md"),
        *_PROJECT.glob("examples/**/*.md"),
    ]
    assert {"README.md", "CHANGELOG.md", "spark.md"} <= {path.name for path in found}
    return found


def test_each_installation_works_in_a_checkout() -> None:
    """There is no release, so the package index has no lakelog."""
    lines = [
        (path.name, line)
        for path in _pages()
        for line in _INSTALL.findall(path.read_text(encoding="utf-8"))
        if line.strip()
    ]
    assert len(lines) > 5
    assert [each for each in lines if not re.search(r"(^| )'?\.", each[1])] == []


def _missing(text: str, paths: set[str]) -> list[str]:
    """Return the modules in a page that are the end of no path."""
    names = set(_MODULE.findall(text)) - _EXAMPLES
    return sorted(
        name for name in names if not any(f"/{path}".endswith(f"/{name}") for path in paths)
    )


def test_each_module_that_a_page_or_a_docstring_names_exists() -> None:
    paths = {
        path.relative_to(_PROJECT).as_posix()
        for folder in ("src", "tests", "benchmarks")
        for path in (_PROJECT / folder).rglob("*.py")
    }
    pages = [_PROJECT / "ARCHITECTURE.md", _PROJECT / "CONTRIBUTING.md"]
    pages += (_PROJECT / "docs" / "adr").glob("*.md")
    pages += (_PROJECT / "src").rglob("*.py")
    assert len(pages) > 100
    missing = {page.name: _missing(page.read_text(encoding="utf-8"), paths) for page in pages}
    assert {name: modules for name, modules in missing.items() if modules} == {}


def test_a_module_that_was_merged_is_missing() -> None:
    text = "`storage/log.py` and `log.py`, but `catalog.py` and `storage/old.py`"
    assert _missing(text, {"src/lakelog/storage/log.py"}) == ["catalog.py", "storage/old.py"]


def test_the_layers_in_the_architecture_equal_the_import_contract() -> None:
    text = (_PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    diagram = text.partition("## Layers")[2].split("```")[1]
    parts = re.split(r"\n|->", re.sub(r"\d|\(.*\)", "", diagram).strip())
    settings = tomllib.loads((_PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    expected = [set(re.findall(r"\w+", layer)) - {"__main__"} for layer in contract]
    assert [set(re.findall(r"\w+", part)) for part in parts] == expected


def _options() -> Iterator[tuple[str, str, str]]:
    """Noun, command and long name of each option but the common ones."""
    for words, command in commands().items():
        noun, _, name = words.partition(" ")
        for argument in command.sections["Options"]:
            for option in argument.option_strings:
                if option.startswith("--") and option != "--help":
                    yield noun, name, option


def _sections() -> dict[str, str]:
    """The text of the page of commands by noun."""
    text = (_PROJECT / "docs/cli.md").read_text(encoding="utf-8")
    found = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    sections = {section.split("\n", 1)[0].lower(): section for section in found}
    sections["explain"] = sections["conventions"]
    return sections


def _passages(section: str, noun: str, name: str, others: set[str]) -> list[str]:
    """The parts of a section that are about a command.

    These are paragraphs, rows of tables and lines of examples that name it; tables whose heads name
    it; and rows that name no command, below the head `option`.
    """
    if not name:
        return [section]
    named, any_named = (
        re.compile(rf"(`|lakelog )({noun} )?({'|'.join(map(re.escape, names))})\b(?!-)")
        for names in ([name], [name, *others])
    )
    found = []
    for part in re.split(r"\n{2,}", section):
        head, *rows = part.split("\n")
        if not head.startswith(("|", "```")):
            rows, head = [part], ""
        is_about = head.startswith("|") and bool(named.search(head))
        is_general = head.startswith("| option |")
        found += [
            row
            for row in rows
            if is_about or named.search(row) or (is_general and not any_named.search(row))
        ]
    return found


def test_the_page_of_commands_lists_every_option_of_every_command() -> None:
    sections, options = _sections(), list(_options())
    names = {(noun, name) for noun, name, _ in options}
    assert len(options) > 100
    missing = [
        f"{noun} {name} {option}"
        for noun, name, option in options
        if not any(
            re.search(rf"(`|lakelog )[^`\n]*{option}\b(?!-)", passage)
            for passage in _passages(
                sections[noun], noun, name, {other for owner, other in names if owner == noun}
            )
        )
    ]
    assert missing == []


def test_an_option_of_another_command_does_not_count() -> None:
    rows = ["| `list` | `-a` |", "| `list-all` | `-b` |"]
    table = "\n".join(["| command | options |", *rows])
    options = "\n".join(["| option | meaning |", "| `-c` | c |", "| `drop -d` | d |"])
    section = f"topic\n\n{table}\n\n{options}\n\nWith `topic list`, e."
    found = _passages(section, "topic", "list", {"list", "list-all", "drop"})
    assert found == [rows[0], "| `-c` | c |", "With `topic list`, e."]
