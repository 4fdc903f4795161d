from __future__ import annotations

import pytest

from lakelog.cli.commands.table_upkeep import described
from lakelog.cli.main import run
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.upkeep.ownership import Overview, PartitionOverview
from unit.tables.archive_table import new_table, write_batch
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
