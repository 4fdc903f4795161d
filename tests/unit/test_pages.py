"""Checks of the pages for users, which no run of their examples finds."""

from __future__ import annotations

import re
from pathlib import Path

_PROJECT = Path(__file__).parents[2]
_INSTALL = re.compile(r"pip install ([^`\n#]*)")


def _pages() -> list[Path]:
    found = [
        _PROJECT / "README.md",
        *_PROJECT.glob("docs/**/*.md"),
        *_PROJECT.glob("examples/**/*.md"),
    ]
    assert len(found) > 10
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
