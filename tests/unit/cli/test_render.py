from __future__ import annotations

import json

import pytest

from lakelog.cli.render import Document, Listing, cell, show, show_all

_ROWS = [
    {"name": "orders", "partitions": 3, "internal": False, "isr": [1, 2], "leader": None},
    {"name": "clicks\x1b[2J", "partitions": 12, "internal": True, "isr": [], "leader": 1},
]
_LISTING = Listing(_ROWS, ("name", "partitions", "internal", "isr", "leader"), empty="no topics")


def test_a_table_is_for_eyes(capsys: pytest.CaptureFixture[str]) -> None:
    show(_LISTING)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "partitions", "internal", "isr", "leader"]
    assert lines[2].split() == ["orders", "3", "no", "1,", "2", "-"]
    assert "\x1b" not in lines[3]


def test_json_has_the_same_data(capsys: pytest.CaptureFixture[str]) -> None:
    show(_LISTING, "json")
    assert json.loads(capsys.readouterr().out) == _ROWS
    show(_LISTING, "jsonl")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == _ROWS


def test_nothing_is_an_empty_array_and_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = Listing([], ("name",), empty="no topics")
    show(nothing, "json")
    assert json.loads(capsys.readouterr().out) == []
    show(nothing)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "no topics\n")


def test_one_document_is_an_object_and_two_are_an_array(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = Document({"name": "a", "parts": _ROWS}, {"name": "a"}, [_LISTING])
    show(document, "json")
    assert json.loads(capsys.readouterr().out)["name"] == "a"
    show_all([document, document], "json")
    assert len(json.loads(capsys.readouterr().out)) == 2
    show(document)
    assert capsys.readouterr().out.startswith("name  a\n\nname")


def test_cells() -> None:
    assert cell(None) == "-"
    assert cell(True) == "yes"
    assert cell([1, None]) == "1, -"
    assert cell("a\nb") == "a\\nb"
