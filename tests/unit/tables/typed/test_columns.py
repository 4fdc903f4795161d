"""The typed columns of a table."""

from __future__ import annotations

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from lakelog.tables.iceberg import table as tables
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.typed.columns import typed_fields, widen
from lakelog.tables.typed.shapes import shape_of
from unit.tables.archive_table import append_json


def test_new_fields_are_added_and_earlier_files_have_none(address: TableAddress) -> None:
    assert typed_fields(address.load()) == []
    first = widen(address, [shape_of([{"a": 1, "o": {"offset": 2}}])])
    append_json(address, first, 0, b'{"a": 1, "o": {"offset": 2}}')
    second = widen(address, [shape_of([{"a": "x", "o": {"more": [1.5]}}])])
    append_json(address, second, 1, b'{"a": "x", "o": {"more": [1.5]}}')

    rows = address.load().scan().to_arrow().sort_by("offset").to_pylist()
    assert [row["data"] for row in rows] == [
        {"a": 1, "o": {"offset": 2, "more": None}},
        {"a": None, "o": {"offset": None, "more": [1.5]}},
    ]
    assert [row["rescued"] for row in rows] == [None, '{"$.a":"x"}']
    ids = [field.metadata for field in second[0].type]
    assert ids[0] == first[0].type.field(0).metadata, "Iceberg finds columns by their ids"


def test_known_fields_change_nothing(address: TableAddress) -> None:
    found = widen(address, [shape_of([{"a": 1}])])
    version = address.load().metadata_location
    assert widen(address, [shape_of([{"a": 2.5}]), shape_of([{"a": None}])]) == found
    assert address.load().metadata_location == version


def test_values_without_objects_make_the_column_for_the_rest_alone(address: TableAddress) -> None:
    fields = widen(address, [shape_of([[1], "x"])])
    assert [field.name for field in fields] == ["rescued"]
    append_json(address, fields, 0, b"[1]")
    (row,) = address.load().scan().to_arrow().to_pylist()
    assert row["rescued"] == '{"$":[1]}'
    assert [each.name for each in widen(address, [shape_of([{"a": 1}])])] == ["data", "rescued"]


@pytest.mark.parametrize(("name", "type_"), [("data", StringType()), ("rescued", LongType())])
def test_columns_of_another_program_are_not_taken(
    address: TableAddress, name: str, type_: StringType | LongType
) -> None:
    with address.load().update_schema() as update:
        update.add_column(name, type_)
    with pytest.raises(ValueError, match=f"has a column '{name}' of type .*table.value.format"):
        widen(address, [shape_of([{"a": 1}])])


def test_a_change_that_another_program_overtakes_is_repeated(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = tables.load_for_commit

    def overtaken(given: TableAddress) -> Table:
        table = load(given)
        monkeypatch.setattr(tables, "load_for_commit", load)
        widen(given, [shape_of([{"theirs": True}])])
        return table

    monkeypatch.setattr(tables, "load_for_commit", overtaken)
    fields = widen(address, [shape_of([{"ours": 1}])])
    assert [each.name for each in fields[0].type] == ["theirs", "ours"]


def test_endless_changes_of_another_program_are_an_error(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise CommitFailedException

    monkeypatch.setattr(Table, "update_schema", fails)
    with pytest.raises(CommitFailedException, match="keeps changing"):
        widen(address, [shape_of([{"a": 1}])])
