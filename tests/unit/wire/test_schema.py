from __future__ import annotations

import pytest

from lakelog.wire.schema import (
    Message,
    Struct,
    array,
    binary,
    boolean,
    int8,
    int32,
    records,
    string,
    struct,
    uuid,
)


class Point(Struct):
    x: int = int32(default=-1)
    y: int = int32(default=-1)


class Drawing(Message, versions="1-4", flexible="3+"):
    name: str = string()
    comment: str | None = string("2+", nullable="3+", default=None)
    visible: bool = boolean(default=True)
    layer: int = int8()
    owner: bytes = uuid()
    points: list[Point] = array(Point)
    labels: list[str] | None = array(string, nullable="0+", default=None)
    origin: Point = struct(Point, "3+", tag=0)
    frame: Point | None = struct(Point, "3+", nullable="3+", tag=1, default=None)
    thumbnail: object = binary("2+")
    pixels: object = records(nullable="0+")


def test_every_field_has_a_default() -> None:
    drawing = Drawing()
    assert (drawing.name, drawing.comment, drawing.visible, drawing.layer) == ("", None, True, 0)
    assert (drawing.owner, drawing.points, drawing.labels) == (bytes(16), [], None)
    assert (drawing.origin, drawing.frame) == (Point(x=-1, y=-1), None)
    assert (drawing.thumbnail, drawing.pixels) == (b"", None)


def test_default_lists_are_not_shared() -> None:
    Drawing().points.append(Point())
    assert Drawing().points == []


def test_the_shared_default_struct_refuses_assignment() -> None:
    with pytest.raises(AttributeError, match=r"Point\.x"):
        Drawing().origin.x = 5
    assert Drawing().origin == Point()


def test_a_struct_given_by_hand_is_mutable() -> None:
    drawing = Drawing(origin=Point(x=1))
    drawing.origin.y = 2
    assert drawing.origin == Point(x=1, y=2)


def test_misspelt_fields_are_refused() -> None:
    with pytest.raises(TypeError):
        Drawing(nmae="x")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Drawing().nmae = "x"  # type: ignore[attr-defined]


def test_constructors_take_keywords_only() -> None:
    with pytest.raises(TypeError):
        Point(1, 2)  # type: ignore[call-arg]


def test_equality_is_by_class_and_fields() -> None:
    class Pair(Struct):
        x: int = int32(default=-1)
        y: int = int32(default=-1)

    assert Point(x=1) == Point(x=1)
    assert Point(x=1) != Point(x=2)
    assert Point() != Pair()
    assert Drawing(pixels=b"ab") == Drawing(pixels=memoryview(b"ab"))


def test_messages_are_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(Point())
