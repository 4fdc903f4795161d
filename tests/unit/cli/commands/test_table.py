from __future__ import annotations

import pytest

from lakelog.cli import table_locations
from lakelog.cli.commands.table import document
from lakelog.cli.main import run

_RESULT = {"topic": "orders", "rows_total": 7, "ends": {"0": 4, "10": 3}}


@pytest.mark.parametrize("words", [["--every", "soon"], ["--warehouse", "ftp://h/w"]])
def test_a_wrong_option_fails_before_connecting(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table_locations, "_NEEDED", ())
    assert run(["table", "sync", "orders", "-b", "127.0.0.1:1", *words]) == 2
    assert "error[LL0902]" in capsys.readouterr().err


def test_json_and_table_show_the_first_offsets_that_are_not_archived() -> None:
    shown = document(_RESULT, {"duckdb": "SELECT 1"})
    ends = [{"partition": 0, "archived_to": 4}, {"partition": 10, "archived_to": 3}]
    assert shown.data["partitions"] == ends
    assert shown.data["snippets"] == {"duckdb": "SELECT 1"}
    assert shown.facts == {"topic": "orders", "rows_total": 7}
    assert [list(part.rows) for part in shown.parts] == [ends]


@pytest.mark.parametrize(
    "words", [[], ["orders", "--enabled"], ["--enabled", "--follow"], ["--enabled", "--name", "t"]]
)
def test_either_one_topic_or_all_enabled_ones(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table_locations, "_NEEDED", ())
    assert run(["table", "sync", *words, "-b", "127.0.0.1:1"]) == 2
    assert "specify either a TOPIC or --enabled" in capsys.readouterr().err
