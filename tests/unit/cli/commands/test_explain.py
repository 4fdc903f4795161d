from __future__ import annotations

import json

import pytest

from lakelog.cli.catalog import CATALOG
from lakelog.cli.commands.explain import explanation
from lakelog.cli.main import run


@pytest.mark.parametrize("code", ["LL0102", "ll0102", "0102", "102"])
def test_explain_takes_a_code_in_any_form(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", code]) == 0
    assert capsys.readouterr().out.startswith("LL0102: topic not found\n")


def test_a_mistyped_code_is_answered_with_a_similar_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "LL0199"]) == 2
    shown = capsys.readouterr().err
    assert "unknown error code 'LL0199'" in shown
    assert "hint: did you mean 'LL0" in shown


def test_every_page_fits_a_terminal_of_80_columns() -> None:
    for entry in CATALOG.values():
        page = explanation(entry)
        assert max(map(len, page.splitlines())) <= 80, entry.code
        assert f"Exit status {entry.exit.value}" in page


def test_without_a_code_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "-f", "json"]) == 0
    assert [row["code"] for row in json.loads(capsys.readouterr().out)] == list(CATALOG)
