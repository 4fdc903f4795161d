"""Widths of columns on a terminal."""

from __future__ import annotations

import pytest

from lakelog.cli.layout import Column, fit

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
