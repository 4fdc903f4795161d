from __future__ import annotations

import json

import pytest

from lakelog.cli import render
from lakelog.cli.render import Column, Document, Listing, cell, fit, show, show_all, sized

_ROWS = [
    {"name": "orders", "partitions": 3, "internal": False, "isr": [1, 2], "leader": None},
    {"name": "clicks\x1b[2J", "partitions": 12, "internal": True, "isr": [], "leader": 1},
]
_LISTING = Listing(_ROWS, ("name", "partitions", "internal", "isr", "leader"), empty="no topics")


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (2_000_000_000, "2.0 GB")]
)
def test_a_size_has_a_unit_that_shows_it(number: int, text: str) -> None:
    assert sized(number) == text


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


def test_json_is_an_array_of_however_many(capsys: pytest.CaptureFixture[str]) -> None:
    document = Document({"name": "a", "parts": _ROWS}, {"name": "a"}, [_LISTING])
    for results in ([], [document], [document, document]):
        show_all(results, "json")
        assert json.loads(capsys.readouterr().out) == [document.data] * len(results)
    show(document)
    assert capsys.readouterr().out.startswith("name  a\n\nname")


_WIDE = Listing(
    [
        {
            "topic": f"orders-of-the-year-{number}",
            "partition": number,
            "committed_offset": 9_000_000_000 + number,
            "lag": 123_456_789,
            "owner": "a-client-with-a-long-name",
            "limit": "9223372036854775807",
        }
        for number in range(2)
    ],
    ("topic", "partition", "committed_offset", "lag", "owner", "limit"),
)


@pytest.mark.parametrize("columns", [20, 40, 50, 60, 72, 80, 120])
def test_a_number_is_never_broken(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "_terminal_width", lambda: columns)
    show(_WIDE)
    shown = capsys.readouterr()
    printed = shown.out.split()
    for row in _WIDE.rows:
        assert {str(row["committed_offset"]), str(row["lag"])} <= set(printed)
        assert str(row["limit"]) in printed or "not shown" in shown.err
    assert max(map(len, shown.out.splitlines())) <= max(columns, 44)


def test_a_narrow_table_folds_text_then_drops_it_then_becomes_fields(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(columns: int) -> tuple[list[str], str]:
        monkeypatch.setattr(render, "_terminal_width", lambda: columns)
        show(_WIDE)
        captured = capsys.readouterr()
        return captured.out.splitlines(), captured.err

    lines, notes = shown(106)
    assert (len(lines), notes) == (5, ""), "heading of two lines"
    lines, notes = shown(76)
    assert "limit" in lines[1]
    assert (len(lines) > 5, notes) == (True, "")
    lines, notes = shown(56)
    assert "limit" not in lines[1]
    assert notes == "not shown on 56 columns: limit; use -f json to see them\n"
    lines, notes = shown(20)
    assert lines[1].split() == ["partition", "0"]
    assert (lines.count(""), notes) == (1, "")


def test_cells() -> None:
    assert cell(None) == "-"
    assert cell(True) == "yes"
    assert cell([1, None]) == "1, -"
    assert cell("a\nb") == "a\\nb"


TOPIC = Column("topic", ["orders-of-the-year", "payments"], is_number=False)
OFFSET = Column("committed offset", ["9000000000", "7"], is_number=True)
OWNER = Column("owner", ["a-client-with-a-long-name"], is_number=False)


def test_columns_that_fit_have_their_full_widths() -> None:
    assert fit([TOPIC, OFFSET], 100, 2) == [(TOPIC, 18), (OFFSET, 16)]


def test_a_heading_wraps_before_a_number_is_split() -> None:
    assert fit([TOPIC, OFFSET], 30, 2) == [(TOPIC, 18), (OFFSET, 10)]
    assert fit([TOPIC, OFFSET], 20, 2) == [(TOPIC, 8), (OFFSET, 10)]


def test_text_is_left_out_from_the_right_but_never_the_first_column() -> None:
    assert [column for column, _ in fit([TOPIC, OFFSET, OWNER], 22, 2)] == [TOPIC, OFFSET]
    assert fit([TOPIC, OFFSET, OWNER], 19, 2) == []


@pytest.mark.parametrize("room", range(20, 60))
def test_the_widths_never_exceed_the_room(room: int) -> None:
    widths = [width for _, width in fit([TOPIC, OFFSET, OWNER], room, 2)]
    assert sum(widths) + 2 * (len(widths) - 1) <= room


def test_wide_characters_take_two_cells() -> None:
    assert Column("x", ["日本"], is_number=False).full == 4


def test_a_number_within_text_is_not_split() -> None:
    assert Column("time", ["at 1234567890123 ms"], is_number=False).least == 13
