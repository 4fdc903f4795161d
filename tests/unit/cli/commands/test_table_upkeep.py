from __future__ import annotations

from typing import NoReturn, cast

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakelog.cli.commands.table_upkeep import (
    audited_compacted,
    compacted_facts,
    compacted_findings,
    compacted_to_drop,
    described,
)
from lakelog.cli.main import run
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.location import TableLocation
from lakelog.tables.compacted.table import own_compacted
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.table import ensure_table
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.upkeep.ownership import Overview, PartitionOverview, remove
from unit.tables.archive_log import Log
from unit.tables.archive_table import TOPIC_ID, new_table, write_batch
from unit.tables.compacted.kit import Put, Tables
from unit.tables.hybrid.kit import archive_of


@pytest.fixture
def address(tmp_path_factory: pytest.TempPathFactory) -> TableAddress:
    return new_table(tmp_path_factory.mktemp("warehouse"))


@pytest.mark.parametrize(
    "words",
    [
        ["compact", "orders", "--target", "0"],
        ["compact", "orders", "--min-files", "1"],
        ["expire", "orders", "--keep", "0"],
        ["expire", "orders", "--orphan-age", "10m"],
        ["expire", "orders", "--older-than", "soon"],
    ],
)
def test_a_wrong_option_fails_before_connecting(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["table", *words, "-b", "127.0.0.1:1"]) == 2
    assert "error[LL0902]" in capsys.readouterr().err


def test_a_table_is_shown_with_its_lag(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 3))
    found = Overview(3, 1, 2048, 1, 1, "day(timestamp)", (PartitionOverview(0, 0, 3, 1, 5),))
    shown = described(archive_of(address), found, {})
    assert (shown.data["bytes"], shown.facts["bytes"]) == (2048, "2.0 kB")
    assert shown.data["partition_by"] == "day(timestamp)"
    assert (shown.data["lag"], shown.data["offsets_only_in_table"]) == (2, 1)
    (row,) = shown.parts[0].rows
    assert (row["archived_to"], row["log_end"], row["lag"]) == (3, 5, 2)


@pytest.fixture
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    made = Tables(new_table(tmp_path_factory.mktemp("warehouse")))
    made.append(Put(b"a", b"1"), Put(b"a", b"2"))
    return made


def client(*, is_enabled: bool = True) -> TopicClient:
    log = Log({0: 2})
    log.topic_id = TOPIC_ID
    log.keys = {"table.latest.buckets": "4", "table.latest.interval.ms": "1000"}
    log.keys["table.latest"] = str(is_enabled).lower()
    return cast(TopicClient, log)


def place_of(tables: Tables) -> TableLocation:
    warehouse = tables.archive.catalog["warehouse"]
    return TableLocation("orders", "orders", warehouse.removeprefix("file://"), "", {})


def test_numbers_and_findings_of_the_table(tables: Tables) -> None:
    tables.refresh()
    facts = compacted_facts(client(), tables.version())
    assert facts["latest_table"] == "lakelog.orders_latest"
    assert (facts["latest_rows"], facts["latest_lag"], facts["latest_buckets"]) == (1, 0, 4)
    found = audited_compacted(client(), tables.version())
    assert found is not None
    assert compacted_findings(found)["latest_sound"] is True
    for is_enabled in (True, False):
        dropped = compacted_to_drop(client(is_enabled=is_enabled), place_of(tables))
        assert dropped == tables.place.address


def test_without_such_a_table_nothing_is_shown_or_dropped(tables: Tables) -> None:
    assert compacted_facts(client(), tables.version()) == {}, "there was no refresh"
    tables.refresh()
    assert own_compacted(client(is_enabled=False), tables.version()) is None
    assert audited_compacted(client(is_enabled=False), tables.version()) is None


def test_the_table_of_another_is_not_dropped(tables: Tables) -> None:
    ensure_table(TableAddress(tables.archive.catalog, ("lakelog", "orders_latest")))
    assert compacted_to_drop(client(), place_of(tables)) is None
    assert own_compacted(client(), tables.version()) is None


def test_a_table_whose_files_are_half_deleted_is_dropped(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.refresh()
    compacted = tables.place.address

    def delete(*_: object) -> NoReturn:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(PyArrowFileIO, "delete", delete)
        with pytest.raises(PermissionError):
            remove(compacted, purge=True)
    assert compacted_to_drop(client(), place_of(tables)) == compacted
    remove(compacted, purge=True)
    assert compacted_to_drop(client(), place_of(tables)) is None
