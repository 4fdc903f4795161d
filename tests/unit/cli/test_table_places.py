from __future__ import annotations

import pytest

from lakelog.cli import table_places
from lakelog.cli.failures import CliError
from lakelog.cli.options import Session
from lakelog.cli.table_places import chosen_places, require_libraries


def test_a_missing_library_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_places, "_NEEDED", ("json", "not_installed"))
    with pytest.raises(CliError, match=r"^not_installed not installed") as error:
        require_libraries()
    assert (error.value.code, "lakelog[spark]" in error.value.hint) == ("LL0801", True)


@pytest.mark.parametrize(
    ("warehouse", "catalog"),
    [("/w", None), ("file:///w", None), ("/w", "/c"), ("s3://b/w", "/c")],
)
def test_places_that_the_user_names_need_no_broker(warehouse: str, catalog: str | None) -> None:
    nowhere = Session(brokers="127.0.0.1:1")
    assert chosen_places(nowhere, warehouse, catalog) == (warehouse, catalog)


def test_a_warehouse_in_an_unknown_store_is_an_error_of_its_option() -> None:
    with pytest.raises(CliError, match="unsupported warehouse 'ftp://h/w'") as error:
        chosen_places(Session(brokers="127.0.0.1:1"), "ftp://h/w", None)
    assert error.value.code == "LL0902"
