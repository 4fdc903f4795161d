from __future__ import annotations

import pytest

from lakelog.cli.commands import table
from lakelog.cli.commands.table import _places, _require_extra, document
from lakelog.cli.failures import CliError
from lakelog.cli.main import run
from lakelog.cli.options import Session

_RESULT = {"topic": "orders", "rows_total": 7, "ends": {"0": 4, "10": 3}}


def test_a_missing_library_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_NEEDED", ("json", "not_installed"))
    with pytest.raises(CliError, match=r"^not_installed not installed") as error:
        _require_extra()
    assert (error.value.code, "lakelog[spark]" in error.value.hint) == ("LL0801", True)


@pytest.mark.parametrize(
    ("warehouse", "catalog"),
    [("/w", None), ("file:///w", None), ("/w", "/c"), ("s3://b/w", "/c")],
)
def test_places_that_the_user_names_need_no_broker(warehouse: str, catalog: str | None) -> None:
    nowhere = Session(brokers="127.0.0.1:1")
    assert _places(nowhere, warehouse, catalog) == (warehouse, catalog)


def test_a_warehouse_in_an_unknown_store_is_an_error_of_its_option() -> None:
    with pytest.raises(CliError, match="unsupported warehouse 'ftp://h/w'") as error:
        _places(Session(brokers="127.0.0.1:1"), "ftp://h/w", None)
    assert error.value.code == "LL0902"


@pytest.mark.parametrize("words", [["--every", "soon"], ["--warehouse", "ftp://h/w"]])
def test_a_wrong_option_fails_before_connecting(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table, "_NEEDED", ())
    assert run(["table", "sync", "orders", "-b", "127.0.0.1:1", *words]) == 2
    assert "error[LL0902]" in capsys.readouterr().err


def test_json_and_table_show_the_first_offsets_that_are_not_archived() -> None:
    shown = document(_RESULT, {"duckdb": "SELECT 1"})
    ends = [{"partition": 0, "archived_to": 4}, {"partition": 10, "archived_to": 3}]
    assert shown.data["partitions"] == ends
    assert shown.data["snippets"] == {"duckdb": "SELECT 1"}
    assert shown.facts == {"topic": "orders", "rows_total": 7}
    assert [list(part.rows) for part in shown.parts] == [ends]
