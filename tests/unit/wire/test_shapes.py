from __future__ import annotations

import pytest

from lakelog.wire.schema import Message, Struct, array, boolean, int32, records, string, uuid
from lakelog.wire.shapes import Versions, parse


class Point(Struct):
    x: int = int32(default=-1)
    y: int = int32(default=-1)


class Drawing(Message, versions="1-4", flexible="3+"):
    name: str = string()
    visible: bool = boolean(default=True)
    owner: bytes = uuid()
    points: list[Point] = array(Point)
    pixels: object = records(nullable="0+")


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3+", (3, 99), (2,)), ("0-2", (0, 2), (3,)), ("4", (4,), (3, 5)), ("none", (), (0, 1))],
)
def test_version_ranges(text: str, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    versions = parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)
    assert repr(versions) in (text, f"{text}-{text}")


def test_repr_is_short_and_shows_only_what_differs() -> None:
    drawing = Drawing(name="n", points=[Point(x=i, y=0) for i in range(9)], pixels=bytes(5000))
    text = repr(drawing)
    assert text.startswith("Drawing(name='n', points=[Point(x=0, y=0), ")
    assert "and 6 more" in text
    assert "pixels=<5000 bytes>" in text
    assert "visible" not in text
    assert "owner" not in text
    assert len(text) < 200


def test_an_id_is_shown_as_in_the_log() -> None:
    assert repr(Drawing(owner=bytes(range(16)))) == f"Drawing(owner={bytes(range(16)).hex()})"


@pytest.mark.parametrize("text", ["", "+", "1,2", "-3", "one"])
def test_a_malformed_range_of_versions_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse(text)


def test_versions_are_listed_in_order_and_none_is_empty() -> None:
    assert list(Versions(2, 4)) == [2, 3, 4]
    assert list(parse("none")) == []
    with pytest.raises(AssertionError):
        Versions(3, 1)
