"""Checks of the pages for users, which no run of their examples finds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from unit.cli.command_model import commands

_PROJECT = Path(__file__).parents[2]
_INSTALL = re.compile(r"pip install ([^`\n#]*)")


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


def _options() -> Iterator[tuple[str, str, str]]:
    """Noun, command and long name of each option but the common ones."""
    for words, command in commands().items():
        noun, _, name = words.partition(" ")
        for argument in command.sections["Options"]:
            for option in argument.option_strings:
                if option.startswith("--") and option != "--help":
                    yield noun, name, option


def test_the_page_of_commands_lists_every_option() -> None:
    text = (_PROJECT / "docs/cli.md").read_text(encoding="utf-8")
    found = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    sections = {section.split("\n", 1)[0].lower(): section for section in found}
    sections["explain"] = sections["conventions"]
    options = list(_options())
    assert len(options) > 100
    missing = [
        f"{noun} {name} {option}"
        for noun, name, option in options
        if not re.search(rf"`[^`\n]*{option}\b(?!-)", sections[noun])
    ]
    assert missing == []
    for noun, name, _ in options:
        assert name in sections[noun], f"{noun} {name}"
