"""Phrases are counted in prose alone, also across the ends of lines."""

from __future__ import annotations

from pathlib import Path

from phrases import count_phrases

_SOURCE = '''
"""Return what
is open; nobody and whoever."""

nobody = {"nobody": 1}  # made anew
def test_what_is_told() -> None: ...
'''


def test_docstrings_comments_and_names_of_tests_are_prose(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(_SOURCE)
    assert count_phrases(path) == {"what is": 2, "nobody": 1, "who": 1, "anew": 1, "told": 1}


def test_examples_in_documents_are_not_prose(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("It is told.\n```sh\ntell\n```\nIt goes\non.\n")
    assert count_phrases(path) == {"told": 1, "goes on": 1}
