from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyiceberg.exceptions import CommitFailedException

from lakelog.cli import table_locations
from lakelog.cli.failures import CliError
from lakelog.cli.options import CommandSession
from lakelog.cli.table_locations import (
    ANY_TABLE,
    TableChoice,
    at,
    chosen_locations,
    find_table,
    named_errors,
    repeatable,
    require_libraries,
)
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.history import ProgressMismatchError
from lakelog.tables.compacted.table import CompactedTableError
from lakelog.tables.iceberg.commits import UnknownOutcomeError
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import ArchiveUnreadableError, TopicMissingError
from unit.tables.archive_table import new_table, write_batch
from unit.tables.upkeep.test_ownership import Topics


def test_a_missing_library_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_locations, "_NEEDED", ("json", "not_installed"))
    with pytest.raises(CliError, match=r"^not_installed not installed") as error:
        require_libraries()
    assert (error.value.code, "'.[spark]'" in error.value.hint) == ("LL0801", True)


@pytest.mark.parametrize(
    ("warehouse", "catalog"),
    [("/w", None), ("file:///w", None), ("/w", "/c"), ("s3://b/w", "/c")],
)
def test_places_that_the_user_names_need_no_broker(warehouse: str, catalog: str | None) -> None:
    nowhere = CommandSession(brokers="127.0.0.1:1")
    assert chosen_locations(nowhere, warehouse, catalog) == (warehouse, catalog)


def test_a_warehouse_in_an_unknown_store_is_an_error_of_its_option() -> None:
    with pytest.raises(CliError, match="unsupported warehouse 'ftp://h/w'") as error:
        chosen_locations(CommandSession(brokers="127.0.0.1:1"), "ftp://h/w", None)
    assert error.value.code == "LL0902"


@pytest.mark.parametrize("is_named", [True, False])
def test_a_table_is_found_by_keys_in_the_default_folder_and_by_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    address = new_table(tmp_path)
    commit_batch(address, write_batch(address, 0, 3))
    topics = Topics()
    if is_named:
        topics.keys_of["orders"] = {"table.enable": "false", "table.warehouse": str(tmp_path)}
    folders = [] if is_named else [str(tmp_path)]
    monkeypatch.setattr(table_locations, "_default_folders", lambda _: folders)
    client, nowhere = cast(TopicClient, topics), CommandSession(brokers="127.0.0.1:1")
    found = find_table(nowhere, client, "orders")
    assert found is not None
    assert (found.name, found.warehouse, found.published) == ("orders", str(tmp_path), {0: 3})
    here = TableChoice(warehouse=str(tmp_path))
    assert find_table(nowhere, client, "orders", here) == found
    assert find_table(nowhere, client, "orders", at(found)) == found
    other = find_table(nowhere, client, "orders", TableChoice(name="other"))
    assert other is not None
    assert (other.name, other.warehouse, other.published) == ("other", str(tmp_path), {})


def test_a_topic_without_keys_and_folders_has_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_locations, "_default_folders", lambda _: [])
    client = cast(TopicClient, Topics())
    assert find_table(CommandSession(brokers="127.0.0.1:1"), client, "orders", ANY_TABLE) is None


def test_the_options_of_a_choice_are_shown_as_they_are_written() -> None:
    choice = TableChoice(warehouse="/w", name="sold")
    assert (choice.words, ANY_TABLE.words) == (" --warehouse /w --name sold", "")


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (TopicMissingError("x"), "LL0102"),
        (ProgressMismatchError("x"), "LL0803"),
        (CompactedTableError("x"), "LL0803"),
        (ArchiveUnreadableError("x"), "LL0805"),
        (UnknownOutcomeError("x"), "LL0805"),
        (CommitFailedException("x\ny"), "LL0805"),
        (ValueError("x"), "LL0902"),
    ],
)
def test_errors_of_tables_have_a_code(raised: Exception, code: str) -> None:
    with pytest.raises(CliError) as failure, named_errors():
        raise raised
    assert (failure.value.code, failure.value.message) == (code, "x")


def test_an_error_of_a_repeatable_command_says_so() -> None:
    with pytest.raises(CliError) as failure, repeatable("lakelog table drop orders"):
        raise PermissionError("not in this folder")
    assert failure.value.code == "LL0805"
    assert failure.value.hint == "run `lakelog table drop orders` again to complete it"
