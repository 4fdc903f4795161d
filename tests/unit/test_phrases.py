"""Phrases that make text hard to read: where they are counted, and where none is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from phrases import count_empty_names, count_former_words, count_phrases, prose_files

_PROJECT = Path(__file__).parents[2]

PUBLIC = {"src/lakelog/spark/registry.py": {"place": 1}}
"""Parameters that users may have passed by name."""

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


@pytest.mark.parametrize(
    "source",
    [
        '"one\\nwho is"',
        '"to " "whom it"',
        "# he\n",
        "# no\n# one\n",
        "def test_what_is_sent(): ...",
    ],
)
def test_a_phrase_is_found_however_the_source_divides_it(tmp_path: Path, source: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert sum(count_phrases(path).values()) >= 1


def test_examples_in_documents_are_not_prose(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("It is told.\n```sh\ntell\n```\nIt goes\non.\n")
    assert count_phrases(path) == {"told": 1, "goes on": 1}


def test_no_phrase_makes_text_hard_to_read() -> None:
    files = prose_files(_PROJECT)
    for name in ("README.md", "docs/cli.md", "tests/conftest.py", "src/lakelog/cli/main.py"):
        assert _PROJECT / name in files
    found = {str(path.relative_to(_PROJECT)): count_phrases(path) for path in files}
    assert {name: dict(phrases) for name, phrases in found.items() if phrases} == {}


def test_names_that_hold_nothing_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("def _found(place, *, each=1):\n    self._known = wanted = a.found\n")
    counts = dict.fromkeys(["each", "found", "known", "place", "wanted"], 1)
    assert count_empty_names(path) == counts


def test_words_of_this_project_in_names_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("class SpaceGate:\n    def _next_turn(self, newcomers): self.is_hosted = 1\n")
    assert count_former_words(path) == {"gate": 1, "turn": 1, "newcomers": 1, "hosted": 1}


def test_names_of_the_source_have_the_words_of_the_field() -> None:
    modules = list((_PROJECT / "src").rglob("*.py"))
    assert len(modules) > 300
    counts = {str(path.relative_to(_PROJECT)): count_former_words(path) for path in modules}
    assert {name: dict(words) for name, words in counts.items() if words} == {}


def test_each_name_of_the_source_says_what_it_holds() -> None:
    modules = list((_PROJECT / "src").rglob("*.py"))
    counts = {str(path.relative_to(_PROJECT)): count_empty_names(path) for path in modules}
    assert {name: dict(names) for name, names in counts.items() if names} == PUBLIC
