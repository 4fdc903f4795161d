from __future__ import annotations

import pytest

from lakelog.cli.help_writer import pages
from lakelog.cli.stored_help import FOLDER

PAGES = pages()


def test_stored_pages_match_the_declared_options() -> None:
    stored = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt")}
    assert stored == PAGES, "run: python -m lakelog.cli.help_writer"


@pytest.mark.parametrize("name", PAGES)
def test_pages_fit_a_terminal_of_80_columns(name: str) -> None:
    assert max(map(len, PAGES[name].splitlines())) <= 80
    assert "\x1b" not in PAGES[name]
