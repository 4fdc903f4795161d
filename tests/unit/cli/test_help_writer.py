from __future__ import annotations

from lakelog.cli.help_writer import pages
from lakelog.cli.stored_help import FOLDER


def test_stored_pages_match_the_declared_options_and_fit_80_columns() -> None:
    written = pages()
    stored = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt")}
    assert stored == written, "run: python -m lakelog.cli.help_writer"
    for name, page in written.items():
        assert max(map(len, page.splitlines())) <= 80, name
        assert "\x1b" not in page, name
